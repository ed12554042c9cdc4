"""Who can still be asked in a round, and how often: what the book's own counts come to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.ledger import Accounts, RuleBook, Settlement, Snapshot, Terms
from databazaar.ledger.book import Book
from databazaar.money import Currency
from databazaar.roster import Offer, PriceChange, Purse, Roster

RULES = {
    "sampler": {"kind": "osmd", "eta": 0.1, "alpha": 0.5},
    "aggregator": {"kind": "mean"},
    "payment": {"kind": "price-per-access"},
    "stops": [{"kind": "budget"}],
}


@dataclass
class Standing:
    utility: float = 0.5
    loss: float | None = None
    model_hash: str = ""

    def snapshot(self) -> Snapshot:
        raise NotImplementedError


OFFERS = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(0, 4), st.none() | st.integers(1, 9)), min_size=2, max_size=9
)


def rules_of(offers: list[tuple[int, int | None, int | None]], budget: int, most: int | None, seed: int) -> RuleBook:
    roster = Roster(
        [
            Offer(f"p{i}", f"p{i}", price, cap, () if later is None else (PriceChange(2, later),))
            for i, (price, cap, later) in enumerate(offers)
        ]
    )
    return RuleBook.of(Terms(seed, budget, 3, Currency(), roster, RULES, True, "", most_per_access=most))


def check(rules: RuleBook, book: Book) -> Purse:
    """The purse is what the book's own counts come to."""
    purse, roster, before = rules.purse(book), rules.terms.roster, book.drawn_before()
    np.testing.assert_array_equal(purse.barred, np.flatnonzero(~purse.available))
    assert (purse.everybody, purse.anybody) == (bool(purse.available.all()), bool(purse.available.any()))
    if roster.most_accesses is None:
        assert purse.accesses_left is None
    else:
        counts = np.array([before.get(provider, 0) for provider in roster.ids])
        np.testing.assert_array_equal(purse.accesses_left, roster.most_accesses - counts)
    return purse


@given(OFFERS, st.integers(1, 60), st.none() | st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_round_by_round_it_is_what_everybody_tells(
    offers: list[tuple[int, int | None, int | None]], budget: int, most: int | None, seed: int
) -> None:
    rules = rules_of(offers, budget, most, seed)
    accounts, state, kept = Accounts(rules), rules.start(), list[tuple[Purse, list[int]]]()
    for round in range(6):
        purse = check(rules, accounts.book)
        if rules.stopped(accounts.book, purse) is not None:
            return
        kept.append((purse, [] if purse.accesses_left is None else purse.accesses_left.tolist()))
        drawn = rules.draw(state, accounts.book, purse)
        assert purse.available[drawn.draws].all()
        accounts.reserve(round, drawn)
        check(rules, accounts.book)  # in the midst of a round
        check(rules, accounts.book.copied())  # a fork, and then the book itself again
        many = len(drawn.draws)
        paid = rules.pay(drawn, [0.0] * many)
        result = Settlement([0.0] * many, [None] * many, drawn.probabilities.tolist(), paid, 0.5, None, 0.5, None)
        accounts.settle(round, drawn, result, Standing())
        state = rules.learn(state, drawn, result.gains)
    for purse, left in kept:
        assert left == ([] if purse.accesses_left is None else purse.accesses_left.tolist()), "it was changed later"
