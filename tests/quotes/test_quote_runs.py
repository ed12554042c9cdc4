"""Quotes against real runs of the rule book: random gains, failures, samplers, prices, caps, changes and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Adaptive, Arbiter, Uniform
from databazaar.defence import Defence
from databazaar.ledger import Book, RuleBook
from databazaar.market.quoting import Quote, quote
from databazaar.roster import PriceChange, ProviderTerms
from databazaar.samplers import Sampler
from defended_markets import play, random_measures, rules_with
from quoted_markets import Even, Stubborn, offers_at, played, rules_for
from small_markets import vector_market

SAMPLERS: list[Sampler] = [
    Adaptive(),
    Adaptive(alpha=1.0),
    OSMD(eta=1.0, alpha=0.1),
    OSMD(eta=50.0, alpha=0.0),
    Uniform(),
    Uniform(replacement=False),
    *(Stubborn(dearest, mixed) for dearest in (True, False) for mixed in (True, False)),
]
PRICES = st.one_of(st.integers(1, 9), st.integers(1, 400), st.sampled_from([10, 20, 10**9]))


@st.composite
def offers(draw: st.DrawFn, place: int) -> ProviderTerms:
    changes = draw(st.dictionaries(st.integers(1, 12), PRICES, max_size=2)) if draw(st.booleans()) else {}
    return ProviderTerms(
        f"p{place}",
        f"p{place}",
        draw(PRICES),
        draw(st.one_of(st.none(), st.none(), st.integers(1, 20))),
        tuple(PriceChange(*change) for change in sorted(changes.items())),
    )


@st.composite
def markets(draw: st.DrawFn) -> RuleBook:
    n, per_round = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    alike = draw(st.integers(0, 3)) == 0
    limits = st.one_of(st.none(), st.none(), st.integers(1, 500))
    chosen = st.sampled_from([s for s in SAMPLERS if per_round <= n or s != Uniform(replacement=False)])
    return rules_for(
        offers_at(*[draw(PRICES)] * n) if alike else [draw(offers(place)) for place in range(n)],
        budget=draw(st.integers(1, 150)),
        per_round=per_round,
        sampler=draw(chosen),
        seed=draw(st.integers(0, 2**20)),
        most_per_access=draw(limits),
        most_per_round=draw(limits),
    )


@given(markets(), st.sampled_from([0.0, 0.3]))
@settings(max_examples=30)
def test_whatever_the_market_a_quote_keeps_to_its_rules(rules: RuleBook, failing: float) -> None:
    """No more than the budget, caps and limits; and nobody is asked in a run whom the quote has closed."""
    found, terms, book = quote(rules), rules.terms, played(rules, failing)
    for one in (found.rounds, found.accesses, found.unspent, *(p.pay for p in found.providers)):
        assert 0 <= one.low <= one.median <= one.high
    assert found.unspent.high <= terms.budget and found.accesses.median <= terms.per_round * (found.rounds.high + 1)
    for provider in found.providers:
        assert provider.pay.high <= terms.budget - found.unspent.low
        assert provider.most_accesses is None or provider.accesses.high <= provider.most_accesses
        assert provider.open or provider.accesses.high == 0
        assert book.rounds > found.rounds.high or provider.open or provider.id not in book.drawn
    assert (book.rounds > 0) == (found.rounds.high > 0)
    assert [p.open for p in found.providers] == sorted((p.open for p in found.providers), reverse=True)
    assert found.warnings or found.rounds.high
    assert repr(found).startswith("Quote\n  budget")


SMALL: dict[str, dict[str, Any]] = {
    "one price": {"offers": offers_at(*[10] * 8), "budget": 1_500, "per_round": 4},
    "rising prices": {"offers": offers_at(*range(5, 25)), "budget": 2_000, "per_round": 5},
    "two prices": {"offers": offers_at(*[1] * 5, *[20] * 5), "budget": 750, "per_round": 5},
    "caps": {
        "offers": [ProviderTerms(c, c, 10 + i, 15 + i) for i, c in enumerate("abcdefgh")],
        "budget": 2_000,
        "per_round": 3,
    },
    "pace": {"offers": offers_at(*range(10, 20)), "budget": 1_250, "per_round": 6, "most_per_round": 40},
    "limit": {"offers": offers_at(*range(10, 40, 3)), "budget": 1_250, "per_round": 4, "most_per_access": 25},
    "change": {
        "offers": [ProviderTerms(c, c, 8, None, (PriceChange(20, 16),)) for c in "abcdef"],
        "budget": 1_000,
        "per_round": 3,
    },
}


def assert_within(found: Quote, book: Book) -> None:
    assert found.rounds.low <= book.rounds <= found.rounds.high
    assert found.accesses.low <= sum(book.drawn.values()) <= found.accesses.high
    assert book.left <= found.unspent.high + max(provider.price for provider in found.providers)


@pytest.mark.parametrize("sampler", [Adaptive(), OSMD(eta=1.0, alpha=0.1), Uniform()], ids=lambda one: one.kind)
@pytest.mark.parametrize("name", SMALL)
def test_a_run_lies_within_its_quote(name: str, sampler: Sampler) -> None:
    """The gains of these runs say nothing about anybody; a third of the replies fail in one of them."""
    found = quote(rules_for(**SMALL[name], sampler=sampler, seed=7))
    for failing in (0.0, 0.3):
        assert_within(found, played(rules_for(**SMALL[name], sampler=sampler, seed=100), failing, gain=0.01))


@pytest.mark.parametrize("name", SMALL)
def test_a_defended_run_lies_within_its_quote(name: str) -> None:
    given = {"defence": Defence.named("standard"), "sampler": Adaptive(), **SMALL[name]}
    found = quote(rules_with(**given, seed=7))
    assert_within(found, play(rules_with(**given, seed=100), random_measures(5, flags=0.0)).book)


def test_a_market_of_real_parties_lies_within_its_quote() -> None:
    consumer, providers = vector_market(budget=100, prices=[3, 1, 7, 2])
    arbiter = Arbiter(consumer, providers, engine="loop")
    found, report = arbiter.quote(), arbiter.run()
    assert found.rounds.low <= len(report.rounds) <= found.rounds.high
    assert found.stops == ("patience",) and "where the stop 'patience' has a reason" in repr(found)


def test_a_long_run_is_continued_as_it_began() -> None:
    """Against whole runs of a sampler that never changes its mind."""
    market = offers_at(2, 5, 5, 11, 20, 35)
    market[0] = ProviderTerms("p0", "p0", 2, most_accesses=100_000)
    found = quote(rules_for(market, budget=60_000, per_round=4, sampler=Even()))
    assert found.horizon is not None and found.horizon < found.rounds.low
    for seed in range(3):
        book = played(rules_for(market, budget=60_000, per_round=4, sampler=Even(), seed=seed))
        assert found.rounds.median == pytest.approx(book.rounds, rel=0.05)
        assert found.accesses.median == pytest.approx(sum(book.drawn.values()), rel=0.05)
        pay = {provider.id: provider.pay.median for provider in found.providers}
        assert pay == pytest.approx({id: float(amount) for id, amount in book.pay.items()}, rel=0.25)


def test_caps_end_a_long_run_as_well() -> None:
    capped = [ProviderTerms(f"p{i}", f"p{i}", 10, most_accesses=5_000) for i in range(4)]
    found = quote(rules_for(capped, budget=10**9, per_round=4, sampler=Even()))
    assert found.horizon is not None and found.accesses.median == pytest.approx(20_000, rel=1e-3)
    assert found.unspent.low == found.unspent.high == 10**9 - 200_000
    assert all(provider.accesses.high <= 5_000 for provider in found.providers)
