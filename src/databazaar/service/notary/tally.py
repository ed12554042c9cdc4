"""How far a run has come, from its entries as they are taken: what runners tell of theirs (hub/telling.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from databazaar.ledger import Entry


@dataclass
class Tally:
    """The sums so far, and who was paid in the round under way."""

    budget: int = 0
    spent: int = 0
    asked: int = 0
    paid: dict[str, None] = field(default_factory=dict)

    def note(self, entry: Entry) -> list[dict[str, Any]]:
        """Counts an entry in; one line where it ends a round."""
        if entry.kind == "open":
            self.budget = entry.body["budget"]
        elif entry.kind == "reserve":
            self.asked += entry.amount or 0
        elif entry.kind == "post" and entry.amount:
            self.spent += entry.amount
            self.paid[entry.provider or ""] = None
        elif entry.kind == "round":
            return [self._ended(entry)]
        return []

    def _ended(self, entry: Entry) -> dict[str, Any]:
        body, paid = entry.body, list(self.paid)
        self.paid = {}
        stayed = body["reached"] is None
        return {
            "round": (entry.round or 0) + 1,
            "spent": self.spent,
            "asked": self.asked,
            "budget": self.budget,
            "utility": body["utility"] if stayed else body["reached"],
            "loss": body["loss"] if stayed else body["reached_loss"],
            "paid": paid,
            "flagged": [],
        }
