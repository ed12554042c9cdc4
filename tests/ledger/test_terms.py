"""What is agreed before the first round, as a ledger holds it."""

from __future__ import annotations

from databazaar.ledger import Terms
from databazaar.money import Currency
from databazaar.roster import Offer, PriceChange, Roster


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
