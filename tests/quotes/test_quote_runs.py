"""Quotes against real runs of the rule book: random gains, failures, samplers, prices, caps, changes and limits."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, Sampler, Thrifty, Uniform
from databazaar.ledger import Book, RuleBook
from databazaar.market.quoting import Quote, quote
from databazaar.roster import Offer, PriceChange
from own_samplers import Together
from quoted_markets import Even, Stubborn, offers_at, played, rules_for
from small_markets import vector_market

SAMPLERS: list[Sampler] = [
    Together(),
    Together(alpha=1.0),
    Thrifty(),
    Thrifty(alpha=1.0),
    OSMD(eta=1.0, alpha=0.1),
    OSMD(eta=50.0, alpha=0.0),
    Uniform(),
    Uniform(replacement=False),
    *(Stubborn(dearest, mixed) for dearest in (True, False) for mixed in (True, False)),
]
PRICES = st.one_of(st.integers(1, 9), st.integers(1, 400), st.sampled_from([10, 20, 10**9]))


@st.composite
def offers(draw: st.DrawFn, place: int) -> Offer:
    changes = draw(st.dictionaries(st.integers(1, 12), PRICES, max_size=2)) if draw(st.booleans()) else {}
    return Offer(
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
        budget=draw(st.integers(1, 700)),
        per_round=per_round,
        sampler=draw(chosen),
        seed=draw(st.integers(0, 2**20)),
        most_per_access=draw(limits),
        most_per_round=draw(limits),
    )


def assert_within(found: Quote, book: Book) -> None:
    asked = sum(book.drawn.values())
    assert found.rounds.least <= book.rounds <= found.rounds.most
    assert found.accesses.least <= asked <= found.accesses.most
    assert found.least_unspent <= book.left <= found.most_unspent
    for provider in found.providers:
        assert book.pay.get(provider.id, 0) <= provider.can_earn
        assert book.drawn.get(provider.id, 0) <= provider.can_sell
        assert provider.open or provider.id not in book.drawn


@given(markets(), st.sampled_from([0.0, 0.3]))
@settings(max_examples=400)
def test_every_run_lies_within_its_quote(rules: RuleBook, failing: float) -> None:
    found = quote(rules)
    assert_within(found, played(rules, failing))
    for span in (found.rounds, found.accesses):
        assert 0 <= span.least <= span.even <= span.most
    assert [p.open for p in found.providers] == sorted((p.open for p in found.providers), reverse=True)
    assert found.unspent_because or found.most_unspent == 0
    assert found.warnings or found.rounds.most
    assert repr(found).startswith("Quote\n  budget")


def test_a_market_of_real_parties_lies_within_its_quote() -> None:
    consumer, providers = vector_market(budget=100, prices=[3, 1, 7, 2])
    arbiter = Arbiter(consumer, providers, engine="loop")
    found, report = arbiter.quote(), arbiter.run()
    assert found.rounds.least <= len(report.rounds) <= found.rounds.most
    earned = {payout.provider: payout.pay for payout in report.payouts}
    assert all(earned[provider.id] <= provider.can_earn for provider in found.providers)
    assert found.stops == ("patience",) and "where the stop 'patience' has a reason" in repr(found)


def test_even_shares_are_what_draws_by_one_over_price_come_to() -> None:
    market = offers_at(2, 5, 5, 11, 20, 35)
    market[0] = Offer("p0", "p0", 2, most_accesses=150)
    market[1] = Offer("p1", "p1", 5, price_changes=(PriceChange(40, 25),))
    books = [played(rules_for(market, budget=6000, per_round=4, sampler=Even(), seed=seed)) for seed in range(12)]
    found = quote(rules_for(market, budget=6000, per_round=4, sampler=Even()))
    assert abs(np.mean([book.rounds for book in books]) / found.rounds.even - 1) < 0.05
    assert abs(np.mean([sum(book.drawn.values()) for book in books]) / found.accesses.even - 1) < 0.05
