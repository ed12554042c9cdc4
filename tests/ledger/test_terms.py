"""What is agreed before the first round, as a ledger holds it."""

from __future__ import annotations

from typing import Any

import pytest

from databazaar import BazaarError, LedgerError
from databazaar.ledger import Terms
from databazaar.ledger.ledger import differing
from databazaar.money import Currency
from databazaar.roster import PriceChange, ProviderTerms, Roster

RULES: dict[str, Any] = {"sampler": {"kind": "uniform"}, "aggregator": {}, "payment": {}, "stops": []}
OFFERS = [
    ProviderTerms("a", "x", 2),
    ProviderTerms("b", "x", 3, most_accesses=0),
    ProviderTerms("c", "y", 4, price_changes=(PriceChange(3, 9),)),
    ProviderTerms("d", "y", 5, 7, (PriceChange(1, 2), PriceChange(2, 5))),
]
ABOUT: dict[str, Any] = {
    "market": "harbour",
    "consumer": "port",
    "data": {"a.csv": "11"},
    "layout": "22",
    "notes": {"n": "33"},
    "environment": {"python": "3"},
    "holdout": {"judge": "44"},
    "frozen": "55",
}


def terms(**changes: Any) -> Terms:
    given = {"seed": 1, "budget": 100, "per_round": 2, "currency": Currency("EUR", 2), "roster": Roster(OFFERS)}
    return Terms(**{**given, "rules": RULES, "bounded_utility": True, "initial_model": "00", **changes})


BODY: dict[str, Any] = {
    "format": 5,
    "seed": 1,
    "budget": 100,
    "per_round": 2,
    "currency": {"name": "EUR", "decimals": 2},
    "providers": [
        ["a", "x", 2],
        ["b", "x", 3, {"most_accesses": 0}],
        ["c", "y", 4, {"price_changes": [[3, 9]]}],
        ["d", "y", 5, {"most_accesses": 7, "price_changes": [[1, 2], [2, 5]]}],
    ],
    "rules": RULES,
    "bounded_utility": True,
    "initial_model": "00",
}
WHOLE = {**BODY, **ABOUT, "most_per_access": 9, "most_per_round": 20}


def test_terms_are_written_as_they_were_read() -> None:
    assert terms().body() == BODY
    assert terms(**ABOUT, most_per_access=9, most_per_round=20).body() == WHOLE
    for body, about in ((BODY, {}), (WHOLE, {**ABOUT, "most_per_access": 9, "most_per_round": 20})):
        read = Terms.from_body(body)
        assert read == terms(**about) and read.roster.offers == tuple(OFFERS)
        assert read.body() == body
    assert terms(most_per_access=0).body() == {**BODY, "most_per_access": 0}


def test_rules_beside_those_that_every_market_has_are_read_where_they_are_known() -> None:
    more = {**RULES, "utility": {"kind": "auc"}, "defence": {"owners": True}}
    assert Terms.from_body({**BODY, "rules": {**more, "else": 1}}).rules == more
    for name in RULES:
        rest = {key: value for key, value in RULES.items() if key != name}
        with pytest.raises(LedgerError, match=f"the terms cannot be read .*{name}"):
            Terms.from_body({**BODY, "rules": rest})


NOT_WHOLE = "entry 0 (open): seed, budget, per_round, limits and prices must be whole numbers"
NOT_WRITTEN = "entry 0 (open): bounded_utility or initial_model is not what a ledger writes"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 4}, "entry 0 (open): ledger format 4 needs another version of databazaar"),
        ({"format": 6}, "entry 0 (open): ledger format 6 needs another version of databazaar"),
        ({"seed": 1.0}, NOT_WHOLE),
        ({"budget": True}, NOT_WHOLE),
        ({"per_round": "2"}, NOT_WHOLE),
        ({"most_per_access": 9.0}, NOT_WHOLE),
        ({"most_per_round": None}, NOT_WHOLE),
        ({"currency": {"name": "EUR", "decimals": 2.0}}, NOT_WHOLE),
        ({"providers": [["a", "x", 2.0]]}, NOT_WHOLE),
        ({"bounded_utility": 1}, NOT_WRITTEN),
        ({"initial_model": None}, NOT_WRITTEN),
        ({"providers": [["a", "x", 2, {}, {}]]}, "the terms cannot be read (ValueError(['a', 'x', 2, {}, {}]))"),
        ({"providers": [["a", "x"]]}, "the terms cannot be read (ValueError("),
        ({"providers": [["a", "x", 2, {"else": 1}]]}, "the terms cannot be read (TypeError("),
        ({"providers": 3}, "the terms cannot be read (TypeError("),
        ({"data": [1]}, "the terms cannot be read (AttributeError("),
    ],
)
def test_what_no_ledger_writes_is_not_read(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LedgerError) as refused:
        Terms.from_body({**WHOLE, **changes})
    assert words in str(refused.value)


@pytest.mark.parametrize("name", [name for name in BODY if name != "rules"])
def test_terms_that_lack_something_cannot_be_read(name: str) -> None:
    with pytest.raises(LedgerError, match="the terms cannot be read"):
        Terms.from_body({key: value for key, value in BODY.items() if key != name})


def test_a_currency_without_decimals_has_none() -> None:
    assert Terms.from_body({**BODY, "currency": {"name": "EUR"}}).currency == Currency("EUR", 0)


def test_what_is_said_of_the_market_is_read_as_words() -> None:
    read = Terms.from_body({**BODY, "market": 3, "consumer": 4, "layout": 5, "frozen": 6, "data": {7: 8}})
    assert (read.market, read.consumer, read.layout, read.frozen, read.data) == ("3", "4", "5", "6", {"7": "8"})


def many(providers: int, changes: int = 0) -> Roster:
    changing = tuple(PriceChange(round + 1, 1 + round % 2) for round in range(changes))
    return Roster(
        [
            ProviderTerms("first", "x", 9, None, changing),
            *(ProviderTerms(f"p{i}", "x", 1) for i in range(providers - 1)),
        ]
    )


TOO_MANY = "a market with {} is refused: {} are the most"


@pytest.mark.parametrize(
    ("fine", "wrong", "words"),
    [
        ({"per_round": 10**6}, {"per_round": 10**6 + 1}, TOO_MANY.format("1,000,001 accesses a round", "1,000,000")),
        ({"per_round": 0}, {"per_round": -1}, TOO_MANY.format("-1 accesses a round", "1,000,000")),
        (
            {"rules": {**RULES, "stops": [{}] * 100}},
            {"rules": {**RULES, "stops": [{}] * 101}},
            TOO_MANY.format("101 stops", "100"),
        ),
        ({"currency": Currency("x", 18)}, {"currency": Currency("x", 19)}, TOO_MANY.format("19 decimals", "18")),
        ({}, {"per_round": 10**15}, TOO_MANY.format("10^15 or more accesses a round", "1,000,000")),
        ({}, {"per_round": 10**15 - 1}, TOO_MANY.format("999,999,999,999,999 accesses a round", "1,000,000")),
    ],
)
def test_terms_ask_only_what_an_audit_can_do(fine: dict[str, Any], wrong: dict[str, Any], words: str) -> None:
    terms(**fine)
    with pytest.raises(BazaarError) as refused:
        terms(**wrong)
    assert str(refused.value) == words


def test_so_many_providers_and_changes_of_prices_and_no_more() -> None:
    terms(roster=many(10**5))
    with pytest.raises(BazaarError) as refused:
        terms(roster=many(10**5 + 1))
    assert str(refused.value) == TOO_MANY.format("100,001 providers", "100,000")
    terms(roster=many(10**4, 2000))
    with pytest.raises(BazaarError) as refused:
        terms(roster=many(10**4, 2001))
    assert str(refused.value) == TOO_MANY.format("20,010,000 prices over time", "20,000,000")
    with pytest.raises(BazaarError) as refused:
        Terms.from_body({**BODY, "providers": [None] * (10**5 + 1)})
    assert str(refused.value) == TOO_MANY.format("100,001 providers", "100,000")


@pytest.mark.parametrize("name", ["budget", "most_per_access", "most_per_round", "price"])
def test_amounts_have_63_bits(name: str) -> None:
    def with_amount(amount: int) -> Terms:
        return terms(roster=Roster([ProviderTerms("a", "x", amount)])) if name == "price" else terms(**{name: amount})

    with_amount(2**63 - 1)
    with pytest.raises(BazaarError, match=r"amounts of 2\^63 minor units or more"):
        with_amount(2**63)


def test_seeds_have_256_bits() -> None:
    for seed in (0, 2**256 - 1):
        assert terms(seed=seed).seed == seed
    for seed in (-1, 2**256):
        with pytest.raises(BazaarError, match="a seed below 0, or of 2"):
            terms(seed=seed)


def test_what_limits_a_market_beside_its_budget() -> None:
    plain = Roster(OFFERS[:1])
    assert terms(roster=plain).limited is False
    assert terms(roster=Roster(OFFERS[:2])).limited is True
    assert terms(roster=plain, most_per_access=0).limited is True
    assert terms(roster=plain, most_per_round=5).limited is True


def test_places_are_those_of_the_roster() -> None:
    assert terms().places == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_terms_show_what_matters() -> None:
    assert repr(terms(per_round=2000, most_per_round=20)) == (
        "Terms(budget: 1.00 EUR, most per round: 0.20 EUR, accesses a round: 2,000, "
        "providers: 4 (a, b, c, d), sampler: uniform, seed: 1)"
    )


@pytest.mark.parametrize("name", ["notes", "environment", "data", "holdout"])
def test_where_a_run_is_played_and_what_lies_beside_its_ledger_are_not_agreed(name: str) -> None:
    agreed = [] if name in ("notes", "environment") else [name]
    assert differing(BODY | ABOUT, BODY | ABOUT | {name: {"other": "66"}}) == agreed
