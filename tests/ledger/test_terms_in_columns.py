"""Terms are read in columns where offers are as the ledger writes them; the obvious way is one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.errors import BazaarError
from databazaar.ledger import Terms
from databazaar.ledger.terms import _offer, _offers
from databazaar.money import Currency
from databazaar.roster import Offer, PriceChange, Roster

ODD = st.none() | st.booleans() | st.integers(-1, 3) | st.text(max_size=3) | st.floats(allow_nan=False)
MORE = st.fixed_dictionaries(
    {}, optional={"most_accesses": ODD, "price_changes": st.lists(st.tuples(ODD, ODD)), "x": ODD}
)
ROWS = st.one_of(
    st.tuples(st.text(max_size=3), st.text(max_size=3), st.integers(1, 9)).map(list),
    st.tuples(st.text(max_size=3), st.text(max_size=3), st.integers(1, 9), MORE).map(list),
    st.lists(ODD | MORE, max_size=5),
    ODD,
)


def obvious(given: list[Any]) -> list[tuple[Any, ...]]:
    offers = [_offer(one) for one in given]
    return [(one.id, one.owner, one.price, one.most_accesses, one.price_changes) for one in offers]


def in_columns(given: list[Any]) -> list[tuple[Any, ...]]:
    ids, owners, prices, others = _offers(given)
    rest = [others.get(place, Offer("", "", 1)) for place in range(len(ids))]
    columns = zip(ids, owners, prices, rest, strict=True)
    return [(id, owner, price, one.most_accesses, one.price_changes) for id, owner, price, one in columns]


@given(st.lists(ROWS, max_size=5))
def test_columns_hold_what_the_offers_hold_and_refuse_what_they_refuse(given: list[Any]) -> None:
    try:
        expected = obvious(given)
    except (BazaarError, ValueError, TypeError, KeyError, AttributeError) as reason:
        with pytest.raises(type(reason)) as refused:
            in_columns(given)
        assert str(refused.value) == str(reason)
    else:
        assert repr(in_columns(given)) == repr(expected)


def test_terms_are_written_as_they_were_read() -> None:
    offers = [
        Offer("a", "x", 2),
        Offer("b", "x", 3, most_accesses=0),
        Offer("c", "y", 4, price_changes=(PriceChange(3, 9),)),
        Offer("d", "y", 5, 7, (PriceChange(1, 2), PriceChange(2, 5))),
    ]
    rules = {"sampler": {"kind": "uniform"}, "aggregator": {}, "payment": {}, "stops": []}
    terms = Terms(1, 100, 2, Currency(), Roster(offers), rules, True, "00")
    body = terms.body()
    assert body["providers"] == [
        ["a", "x", 2],
        ["b", "x", 3, {"most_accesses": 0}],
        ["c", "y", 4, {"price_changes": [[3, 9]]}],
        ["d", "y", 5, {"most_accesses": 7, "price_changes": [[1, 2], [2, 5]]}],
    ]
    assert Terms.from_body(body) == terms and Terms.from_body(body).roster.offers == tuple(offers)
