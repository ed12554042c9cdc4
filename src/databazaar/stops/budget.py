"""The end of every run: the money is spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.stops.protocol import History


@dataclass(frozen=True)
class Budget:
    """Ends a run when what is left pays for nobody. Every run has it.

    With one price for all, that is Algorithm 1's T = ⌊B/K⌋: a rest that buys no whole round goes back. Where prices
    differ, the run goes on while anybody is affordable, and a round that does not fit is shortened to what does.
    """

    kind: ClassVar[str] = "budget"

    def reason(self, history: History) -> str | None:
        cheapest, dearest = int(history.purse.quotes.min()), int(history.purse.quotes.max())
        needed = cheapest * history.per_round if cheapest == dearest else cheapest
        return "the budget is spent" if history.purse.left < needed else None
