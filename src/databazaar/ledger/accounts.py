"""The steps of a run's money: reserve, settle, close. Kept in a book alone, or written down by a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry, Kind
from databazaar.ledger.rulebook import Drawn, RuleBook
from databazaar.ledger.store import Snapshot

Draft = tuple[Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""An entry that has no number and no hash yet."""


@dataclass(frozen=True)
class Settlement:
    """How a round ended, draw by draw. `failures[k]` is None where draw k is paid; `gains[k]` is then a number.

    `utility` and `loss` are those of the model that the round began with, `reached` and `reached_loss` those of the
    model that it ended with; `reached` is None where that has no finite utility. `replies[k]` is the hash of the signed
    reply that draw k is settled by, None where there is none.
    """

    gains: Sequence[float | None]
    failures: Sequence[str | None]
    probabilities: Sequence[float]
    paid: Sequence[int]
    utility: float
    loss: float | None
    reached: float | None
    reached_loss: float | None
    replies: Sequence[str | None] = ()


class Standing(Protocol):
    """What a round leaves behind for the next: a ledger asks for what it keeps of it."""

    @property
    def model_hash(self) -> str: ...

    @property
    def utility(self) -> float: ...

    @property
    def loss(self) -> float | None: ...

    def snapshot(self) -> Snapshot:
        """What a run goes on from after a crash."""
        ...


class Accounts:
    """The book of one run, kept by its rules and written nowhere: for simulations in which nobody audits anything."""

    def __init__(self, rules: RuleBook) -> None:
        self.rules = rules
        self.terms = rules.terms
        self.book = rules.new_book()
        self._seq = 1

    def reserve(self, round: int, drawn: Drawn) -> None:
        """Sets aside the most that the round's draws may cost, before anybody is asked.

        A round that was reserved before a crash is found reserved, and nothing is set aside twice.
        """
        ids = [self.terms.roster.ids[i] for i in drawn.draws.tolist()]
        held = {key: who for key, (who, _) in self.book.reserved.items()}
        if held:
            if held != {(round, draw): who for draw, who in enumerate(ids)}:
                raise LedgerError(f"round {round} is reserved with other draws than these: the ledger was changed")
            return
        cost, left = sum(drawn.quotes), self.book.left
        if cost > left:
            raise LedgerError(f"round {round} would reserve {cost} of {left} left in the budget: nothing was written")
        quotes = zip(ids, drawn.quotes, strict=True)
        self._write([("reserve", round, draw, who, quote, {}) for draw, (who, quote) in enumerate(quotes)])

    def settle(self, round: int, drawn: Drawn, result: Settlement, standing: Standing) -> None:
        """Pays valid replies what the payment rule says, and voids failed ones."""
        self._write(self._settling(round, drawn, result, ""))

    def _settling(self, round: int, drawn: Drawn, result: Settlement, model: str) -> list[Draft]:
        ids = self.terms.roster.ids
        replies = result.replies or [None] * len(drawn.draws)
        named: list[dict[str, str]] = [{} if reply is None else {"reply": reply} for reply in replies]
        lines = zip(drawn.draws.tolist(), drawn.quotes, result.paid, result.failures, named, strict=True)
        entries: list[Draft] = [
            ("post", round, draw, ids[i], paid, reply)
            if why is None
            else ("void", round, draw, ids[i], quote, {"reason": _writable(why), **reply})
            for draw, (i, quote, paid, why, reply) in enumerate(lines)
        ]
        body = {
            "gains": list(result.gains),
            "probabilities": list(result.probabilities),
            "utility": result.utility,
            "loss": result.loss,
            "reached": result.reached,
            "reached_loss": result.reached_loss,
            "model": model,
        }
        return [*entries, ("round", round, None, None, None, body)]

    def close(self, status: str, message: str, stop: dict[str, str], standing: Standing) -> None:
        """Settles the whole run: what was not spent goes back to the consumer."""
        self._write([("close", None, None, None, None, {"status": status})])

    def _write(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            self.book.apply(Entry(self._seq, *draft))
            self._seq += 1
        self.book.assert_sound()


def _writable(text: str) -> str:
    """Text from a provider's side that UTF-8 can hold: a lone surrogate is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()
