"""The report as a function of the ledger: nothing in it is remembered from anywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from databazaar.errors import LedgerError
from databazaar.ledger.audit import Audit
from databazaar.ledger.book import Book
from databazaar.ledger.record import Record
from databazaar.ledger.rulebook import Stopped, end_of
from databazaar.ledger.terms import Terms
from databazaar.roster import Amounts, RoundBudget
from databazaar.runs.defended import defended_by
from databazaar.runs.payouts import Payouts
from databazaar.runs.report import Report
from databazaar.samplers import OSMD, SAMPLERS, Sampler
from databazaar.samplers.protocol import Explores


def report_from(audit: Audit) -> Report:
    """The report of a ledger that has been replayed, closed or still open. One that does not hold is refused."""
    if not audit.ok or audit.terms is None or audit.book is None:
        raise LedgerError(f"the ledger does not hold, so nothing can be reported from it: {audit.message}")
    terms, book, closing, record = audit.terms, audit.book, audit.closing, audit.record or Record()
    money, sampler, stopped = terms.currency.format, SAMPLERS.build(terms.rules["sampler"]), None
    if closing is None:
        utility, loss = (float("nan"), None) if audit.scores is None else audit.scores.ended
        message = (
            f"not finished: {audit.rounds} rounds played so far, {money(book.spent)} paid; "
            "nothing here is final until the run is resumed to its end, or closed"
        )
        closing = {
            "status": "open",
            "refunded": 0,
            "utility": utility,
            "loss": loss,
        }
    else:
        stopped = Stopped.read(closing["stop"])
        message = str(end_of(stopped, book, terms.currency))
    return Report(
        status=closing["status"],
        message=message,
        rules=terms.rules,
        seed=terms.seed,
        currency=terms.currency,
        budget=terms.budget,
        per_round=terms.per_round,
        spent=book.spent,
        refunded=closing["refunded"],
        held=book.held,
        payouts=payouts(terms, book),
        rounds=record.rounds,
        distributions=record.distributions,
        purses=record.purses,
        final_utility=closing["utility"],
        final_loss=closing["loss"],
        model_hash=audit.delivered or "",
        last_model_hash=audit.model or "",
        best=audit.best,
        ledger_head=audit.head,
        stopped_by=None if stopped is None else stopped.reason,
        regret_bound=regret_bound(terms, audit.rounds * terms.per_round),
        market=terms.market,
        consumer=terms.consumer,
        gains=sampler.wants.gains,
        exploration=_exploration(sampler, record.purses),
        environment=terms.environment,
        defended=defended_by(audit),
    )


def _exploration(sampler: Sampler, purses: Sequence[RoundBudget]) -> tuple[float, ...] | None:
    """What a draw costs for exploration alone, by the last purse that paid for anybody; not all samplers can say."""
    last = next((round_budget for round_budget in reversed(purses) if round_budget.available.any()), None)
    if last is None or not isinstance(sampler, Explores):
        return None
    return tuple(np.asarray(sampler.exploration(last), dtype=np.float64).tolist())


def payouts(terms: Terms, book: Book) -> Payouts:
    """Every provider's line, as the book has it."""
    roster, places = terms.roster, terms.places

    def column(amounts: Mapping[str, int]) -> Amounts:
        found = np.zeros(len(roster), dtype=np.int64)
        found[[places[who] for who in amounts]] = list(amounts.values())
        return found

    counts = column(book.accesses), column(book.pay), column(book.failures)
    return Payouts(roster.ids, roster.owners, roster.prices, *counts)


def regret_bound(terms: Terms, accesses: int) -> float | None:
    """Theorem 1's bound in units of utility over the accesses played, where it applies: OSMD with equal prices, no
    caps, limits or defence, and a utility in [0, 1]."""
    if "defence" in terms.rules or not terms.bounded_utility or terms.rules["sampler"]["kind"] != OSMD.kind:
        return None
    if terms.limited or len({offer.price for offer in terms.roster.offers}) != 1 or not accesses:
        return None
    sampler = SAMPLERS.build(terms.rules["sampler"])
    bound: float | None = sampler.regret_bound(len(terms.roster), accesses, terms.per_round)
    return bound
