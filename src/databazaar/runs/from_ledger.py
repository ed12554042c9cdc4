"""The report as a function of the ledger: nothing in it is remembered from anywhere else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from databazaar.errors import BazaarError
from databazaar.ledger.audit import audit_entries
from databazaar.ledger.book import Book
from databazaar.ledger.chain import Entry
from databazaar.ledger.ledger import Terms
from databazaar.runs.report import Access, Payout, Report, Round, Status
from databazaar.samplers import OSMD, from_settings


def report_from(entries: Iterable[Entry]) -> Report:
    """The report of a closed ledger. The distributions are replayed from draws and gains."""
    kept = list(entries)
    if not kept or kept[-1].kind != "close":
        raise BazaarError("this run is not finished: `bazaar resume` goes on with it")
    terms = Terms.from_body(kept[0].body)
    book = Book(terms.budget, terms.prices, terms.owners)
    for entry in kept[1:]:
        book.apply(entry)
    closing = kept[-1].body
    status: Status = closing["status"]
    return Report(
        status=status,
        message=closing["message"],
        rules={"sampler": terms.sampler},
        seed=terms.seed,
        currency=terms.currency,
        budget=terms.budget,
        per_round=terms.per_round,
        spent=closing["spent"],
        refunded=closing["refunded"],
        payouts=payouts(terms, book),
        rounds=tuple(rounds(terms, kept)),
        distributions=np.array(audit_entries(kept).distributions),
        final_utility=closing["utility"],
        final_loss=closing["loss"],
        model_hash=closing["model"],
        ledger_head=kept[-1].hash,
        regret_bound=regret_bound(terms),
    )


def payouts(terms: Terms, book: Book) -> tuple[Payout, ...]:
    return tuple(
        Payout(i, owner, price, book.accesses.get(i, 0), book.pay.get(i, 0), book.failures.get(i, 0))
        for i, owner, price in terms.providers
    )


def rounds(terms: Terms, entries: Iterable[Entry]) -> Iterable[Round]:
    index = {provider: i for i, provider in enumerate(terms.ids)}
    settled: list[Entry] = []
    for entry in entries:
        if entry.kind in ("post", "void"):
            settled.append(entry)
        elif entry.kind == "round":
            body = entry.body
            accesses = tuple(
                Access(
                    draw,
                    index[e.provider or ""],
                    p,
                    gain,
                    (e.amount or 0) if e.kind == "post" else 0,
                    e.body.get("reason"),
                )
                for draw, (e, gain, p) in enumerate(zip(settled, body["gains"], body["probabilities"], strict=True))
            )
            yield Round(entry.round or 0, accesses, body["utility"], body["loss"])
            settled = []


def _paid(entry: Entry) -> int:
    return entry.amount or 0 if entry.kind == "post" else 0


def regret_bound(terms: Terms) -> float | None:
    """Theorem 1's bound in units of utility, where it applies: OSMD, equal prices, a utility in [0, 1]."""
    sampler = from_settings(terms.sampler)
    prices = set(terms.prices.values())
    if not isinstance(sampler, OSMD) or not terms.bounded_utility or len(prices) != 1:
        return None
    accesses = terms.budget // prices.pop() // terms.per_round * terms.per_round
    return sampler.regret_bound(len(terms.providers), accesses, terms.per_round)
