"""The end of a run whose consumer has stopped it, or has not been heard of: answers that were passed on are paid.

The hub settles the round under way in the consumer's place. It has not seen the hold-out, so the round's gains are
written as zero and its model as the one before: nobody's pay depends on them, and no later draw does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from databazaar.codes import Code
from databazaar.ledger import Ledger, Notary, RuleBook, Settlement, Snapshot
from databazaar.ledger.sql import SqlStore
from databazaar.service.notary.handed import Handed
from databazaar.vectors import pack

GONE = Code("arbiter-gone")
"""Why somebody who was drawn, and never asked, is not paid."""


@dataclass(frozen=True)
class _Standing:
    """The last model that the consumer has reported."""

    round: int
    model_hash: str
    utility: float
    loss: float | None
    state: NDArray[Any]

    def snapshot(self) -> Snapshot:
        return Snapshot(self.round, pack({"sampler": self.state}), b"")


def close_for(store: SqlStore, notary: Notary, handed: Handed) -> None:
    """Writes the rest of the run. A crash leaves a ledger that ends in a reserved round, and can be closed again."""
    audit = notary.audit
    assert audit.terms is not None and audit.state is not None and audit.model is not None
    rules, state = RuleBook.of(audit.terms), audit.state
    ledger = Ledger(rules, store)
    utility, loss = (0.0, None) if audit.scores is None else audit.scores.ended
    standing = _Standing(audit.rounds, audit.model, utility, loss, state)
    if handed.answers:
        standing = _settle(rules, ledger, handed, standing)
        stopped = rules.stopped(ledger.book)
        if stopped is not None:
            ledger.close(stopped, standing)
            return
        ledger.reserve(standing.round, rules.draw(standing.state, ledger.book))
    ledger.close_for_consumer(standing.model_hash, standing.utility, standing.loss)


def _settle(rules: RuleBook, ledger: Ledger, handed: Handed, standing: _Standing) -> _Standing:
    """Posts every valid answer of the round under way, and voids the others."""
    drawn = rules.draw(standing.state, ledger.book)
    ids = rules.terms.roster.ids
    asked = [ids[i] for i in drawn.draws.tolist()]
    gains = [0.0 if who in handed.answers else None for who in asked]
    failures = [None if who in handed.answers else handed.failures.get(who, GONE) for who in asked]
    probabilities = drawn.probabilities.tolist()
    settled = rules.settle(standing.state, drawn, gains, probabilities)
    after = _Standing(standing.round + 1, standing.model_hash, standing.utility, standing.loss, settled.state)
    reached = standing.utility, standing.loss
    result = Settlement(gains, failures, probabilities, settled.paid, *reached, *reached)
    ledger.settle(standing.round, drawn, result, after)
    return after
