"""The steps of a run's money: reserve, settle, close. Kept in a book alone, or written down by a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from databazaar.codes import Code
from databazaar.defence import Findings
from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry, Kind
from databazaar.ledger.rulebook import Drawn, RuleBook, Stopped, status_of
from databazaar.ledger.store import Snapshot

Draft = tuple[Kind, int | None, int | None, str | None, int | None, dict[str, Any]]
"""An entry that has no number and no hash yet."""


@dataclass(frozen=True)
class Settlement:
    """How a round ended, draw by draw. `failures[k]` is None where draw k is paid; `gains[k]` is then a number.

    `utility` and `loss` are those of the model that the round began with, `reached` and `reached_loss` those of the
    model that it ended with. `replies[k]` is the hash of the signed reply that draw k is settled by, if there is one.

    With a defence, `held[k]` of what draw k is due is not paid yet, `released` and `returned` are the places of those
    whose held-back pay of earlier rounds is settled now, and `findings` are what verdicts of this round rest on.
    """

    gains: Sequence[float | None]
    failures: Sequence[Code | None]
    probabilities: Sequence[float]
    paid: Sequence[int]
    utility: float
    loss: float | None
    reached: float
    reached_loss: float | None
    replies: Sequence[str | None] = ()
    held: Sequence[int] = ()
    released: Sequence[int] = ()
    returned: Sequence[int] = ()
    findings: Findings | None = None


class RoundState(Protocol):
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
        quotes, left = drawn.quotes, self.book.left
        cost = sum(quotes)
        if cost > left:
            raise LedgerError(f"round {round} would reserve {cost} of {left} left in the budget: nothing was written")
        whom = enumerate(zip(ids, quotes, strict=True))
        self._write([("reserve", round, draw, who, quote, {}) for draw, (who, quote) in whom])

    def settle(self, round: int, drawn: Drawn, result: Settlement, standing: RoundState) -> None:
        """Pays valid replies what the payment rule says, and voids failed ones."""
        self._write(self._settling(round, drawn, result, ""))

    def _settling(self, round: int, drawn: Drawn, result: Settlement, model: str) -> list[Draft]:
        ids = self.terms.roster.ids
        replies = result.replies or [None] * len(drawn.draws)
        named: list[dict[str, str]] = [{} if reply is None else {"reply": reply} for reply in replies]
        held = result.held or [0] * len(drawn.draws)
        lines = zip(drawn.draws.tolist(), drawn.quotes, result.paid, held, result.failures, named, strict=True)
        entries: list[Draft] = [
            ("post", round, draw, ids[i], paid, {**reply, "held": back} if back else reply)
            if why is None
            else ("void", round, draw, ids[i], quote, {"reason": why.body(), **reply})
            for draw, (i, quote, paid, back, why, reply) in enumerate(lines)
        ]
        entries += self._of_held_back(round, result.released, result.returned)
        findings = {} if result.findings is None else result.findings.body()
        body = {
            "gains": list(result.gains),
            "probabilities": list(result.probabilities),
            "utility": result.utility,
            "loss": result.loss,
            "reached": result.reached,
            "reached_loss": result.reached_loss,
            "model": model,
            **({"findings": findings} if findings else {}),
        }
        return [*entries, ("round", round, None, None, None, body)]

    def _of_held_back(self, round: int | None, released: Sequence[int], returned: Sequence[int]) -> list[Draft]:
        """Entries that settle all that is held back of these places of the roster, in its order."""
        kinds: dict[int, Kind] = {**dict.fromkeys(released, "release"), **dict.fromkeys(returned, "return")}
        ids, held = self.terms.roster.ids, self.book.held_back
        return [(kinds[i], round, None, ids[i], held[ids[i]], {}) for i in sorted(kinds) if ids[i] in held]

    def settle_held_back(self, returned: Sequence[int]) -> None:
        """At the close, what is held back of these places goes back to the consumer, and all else is paid."""
        self._write(self._held_back_at_close(returned))

    def _held_back_at_close(self, returned: Sequence[int]) -> list[Draft]:
        places = self.terms.places
        released = {places[provider] for provider in self.book.held_back} - set(returned)
        return self._of_held_back(None, list(released), returned)

    def close(self, stopped: Stopped, standing: RoundState) -> None:
        """Settles the whole run: what was not spent goes back to the consumer."""
        self._write([("close", None, None, None, None, {"status": status_of(stopped, self.book)})])

    def _write(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            self.book.apply(Entry(self._seq, *draft))
            self._seq += 1
        self.book.assert_sound()
