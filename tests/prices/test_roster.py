"""Offers whose prices change, and purses with caps and limits: the fast way against the obvious one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import BazaarError
from databazaar.roster import PriceChange, ProviderTerms, Roster, RoundBudget

PRICES = st.integers(1, 12)
CHANGES = st.dictionaries(st.integers(1, 9), PRICES, max_size=3)


@given(st.lists(st.tuples(PRICES, CHANGES), min_size=1, max_size=5), st.lists(st.integers(0, 12), max_size=6))
def test_a_roster_of_a_round_has_the_prices_that_were_announced_for_it(
    offers: list[tuple[int, dict[int, int]]], rounds: list[int]
) -> None:
    roster = Roster(
        tuple(
            ProviderTerms(
                f"p{i}", "x", price, i or None, tuple(PriceChange(*change) for change in sorted(changes.items()))
            )
            for i, (price, changes) in enumerate(offers)
        )
    )
    for round in rounds:  # in any order: a roster remembers what it has worked out
        now, current = roster.at(round), [price for price, _ in offers]
        for i, (_, changes) in enumerate(offers):
            for start in range(round + 1):
                current[i] = changes.get(start, current[i])
        assert now.prices.tolist() == current
        assert now.ids == roster.ids and [o.most_accesses for o in now.offers] == [
            o.most_accesses for o in roster.offers
        ]
        assert now.at(round + 1).prices.tolist() == roster.at(round + 1).prices.tolist()
    assert roster.at(0) is roster


def test_a_roster_without_changes_is_itself_in_every_round() -> None:
    roster = Roster.equal(3)
    assert roster.at(0) is roster.at(10**9) is roster
    assert roster.most_accesses is None
    assert Roster((ProviderTerms("a", "a", 1, 5), ProviderTerms("b", "b", 1))).most_accesses is not None


@pytest.mark.parametrize(
    ("cap", "changes", "sentence"),
    [
        (-1, (), "most_accesses = -1 must be a whole number"),
        (True, (), "most_accesses = True must be a whole number"),
        (2.0, (), "most_accesses = 2.0 must be a whole number"),
        (None, ((0, 5),), "from_round = 0 of a price change must be a whole number of at least 1"),
        (None, ((2.5, 5),), "from_round = 2.5"),
        (None, ((3, 0),), "price = 0 from round 3 on must be a whole number of minor units"),
        (None, ((3, 2**63),), "and below 2^63"),
        (None, ((3, 5), (3, 6)), "price changes from rounds 3, 3 must come in their order"),
        (None, ((4, 5), (3, 6)), "price changes from rounds 4, 3 must come in their order"),
    ],
)
def test_an_offer_that_cannot_be_kept_is_refused(cap: int, changes: Sequence[tuple[int, int]], sentence: str) -> None:
    with pytest.raises(BazaarError, match=re.escape(sentence)):
        ProviderTerms("north", "x", 1, cap, tuple(PriceChange(*change) for change in changes))


@st.composite
def purses(draw: st.DrawFn) -> RoundBudget:
    n = draw(st.integers(1, 5))
    quotes = np.array(draw(st.lists(PRICES, min_size=n, max_size=n)))
    caps = draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n))
    limits = st.none() | st.integers(1, 14)
    left = draw(st.integers(0, 40))
    return RoundBudget(left, quotes, None if caps is None else np.array(caps), draw(limits), draw(limits))


@given(purses(), st.data())
def test_what_fits_is_what_an_honest_buyer_could_take_one_by_one(
    round_budget: RoundBudget, data: st.DataObject
) -> None:
    draws = np.array(data.draw(st.lists(st.integers(0, len(round_budget.quotes) - 1), max_size=8)), dtype=np.int64)
    kept = round_budget.fitting(draws).tolist()
    most = (
        round_budget.left
        if round_budget.most_per_round is None
        else min(round_budget.left, round_budget.most_per_round)
    )
    taken: list[int] = []
    for i in draws.tolist():
        used_up = round_budget.accesses_left is not None and taken.count(i) >= round_budget.accesses_left[i]
        too_dear = round_budget.most_per_access is not None and round_budget.quotes[i] > round_budget.most_per_access
        if not used_up and not too_dear and sum(round_budget.quotes[j] for j in [*taken, i]) <= most:
            taken.append(i)
    assert kept == taken
    alone = [len(round_budget.fitting(np.array([i]))) == 1 for i in range(len(round_budget.quotes))]
    assert round_budget.available.tolist() == alone
    assert round_budget.everybody == all(alone)
    if len(draws) and round_budget.available[draws[0]]:
        assert kept[0] == draws[0]  # whoever draws among the available never ends up with nobody


@given(st.integers(0, 40), st.lists(PRICES, min_size=1, max_size=5))
def test_a_purse_with_money_alone_lets_whoever_it_pays_for_be_asked(left: int, quotes: list[int]) -> None:
    round_budget = RoundBudget(left, np.array(quotes))
    assert round_budget.money == left
    assert round_budget.available.tolist() == [quote <= left for quote in quotes]


@st.composite
def offered(draw: st.DrawFn) -> list[ProviderTerms]:
    ids = draw(st.lists(st.text(max_size=5), min_size=1, max_size=8, unique=True))
    changes = st.dictionaries(st.integers(1, 9), st.integers(1, 2**63 - 1), max_size=3)
    return [
        ProviderTerms(
            id,
            draw(st.text(max_size=5)),
            draw(st.integers(1, 2**63 - 1)),
            draw(st.none() | st.integers(0, 2**70)),
            tuple(PriceChange(*change) for change in sorted(draw(changes).items())),
        )
        for id in ids
    ]


@given(offered(), st.integers(0, 10))
def test_columns_are_the_offers(offers: list[ProviderTerms], round: int) -> None:
    roster = Roster(offers)
    assert (roster.ids, roster.owners) == (tuple(one.id for one in offers), tuple(one.owner for one in offers))
    now = roster.at(round)
    assert now.offers == tuple(one.at(round) for one in offers)
    assert now.prices.tolist() == [one.price_at(round) for one in offers]
    assert roster.change_rounds == tuple(sorted({change.from_round for one in offers for change in one.price_changes}))
    caps = [one.most_accesses for one in offers]
    expected = None if set(caps) == {None} else [2**63 - 1 if cap is None else min(cap, 2**63 - 1) for cap in caps]
    assert (None if roster.most_accesses is None else roster.most_accesses.tolist()) == expected
