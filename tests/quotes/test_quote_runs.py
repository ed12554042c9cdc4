"""Quotes against real runs of the rule book: random gains, failures, samplers, prices, caps, changes and limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_markets import vector_market

from databazaar import OSMD, Arbiter, Memory, PricePerAccess, PricePerRow, Uniform
from databazaar.ledger import Accounts, Book, RuleBook, Settlement, Terms
from databazaar.market.quoting import Quote, quote
from databazaar.market.quoting.projection import draws_until_all_seen
from databazaar.market.round import Best, State
from databazaar.money import Currency
from databazaar.roster import Offer, PriceChange, Purse, Roster
from databazaar.samplers import Sampler
from databazaar.samplers.protocol import Draws, Vector, among_affordable
from databazaar.stops import Budget


@dataclass(frozen=True)
class Stubborn:
    """Draws those at one end of the prices, whoever is available; or first one of the one end, then the other's."""

    dearest: bool
    mixed: bool
    kind: ClassVar[str] = "test-stubborn"

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        return np.full(len(roster), 1 / len(roster))

    def probabilities(self, state: Vector, purse: Purse) -> Vector:
        return among_affordable(state, purse)

    def draw(self, state: Vector, rng: np.random.Generator, size: int, purse: Purse) -> Draws:
        there = np.flatnonzero(purse.available)
        rising = there[np.argsort(purse.quotes[there], kind="stable")]
        first, others = (rising[-1], rising[0]) if self.dearest else (rising[0], rising[-1])
        return np.array([first, *[others if self.mixed else first] * (size - 1)])

    def update(self, state: Vector, draws: Draws, gains: Vector, purse: Purse) -> Vector:
        return state

    def exploration(self, purse: Purse) -> Vector:
        return 0.5 * purse.quotes / len(purse.quotes)


SAMPLERS: list[Sampler] = [
    Memory(),
    Memory(alpha=1.0),
    OSMD(eta=1.0, alpha=0.1),
    OSMD(eta=50.0, alpha=0.0),
    Uniform(),
    Uniform(replacement=False),
    *(Stubborn(dearest, mixed) for dearest in (True, False) for mixed in (True, False)),
]


def rules_for(
    offers: list[Offer],
    *,
    budget: int,
    per_round: int,
    sampler: Sampler | None = None,
    payment: PricePerAccess | PricePerRow | None = None,
    seed: int = 0,
    most_per_access: int | None = None,
    most_per_round: int | None = None,
) -> RuleBook:
    terms = Terms(
        seed=seed,
        budget=budget,
        per_round=per_round,
        currency=Currency("EUR", 2),
        roster=Roster(tuple(offers)),
        rules={},
        bounded_utility=True,
        initial_model="",
        most_per_access=most_per_access,
        most_per_round=most_per_round,
    )
    return RuleBook(terms, sampler or Memory(), payment or PricePerAccess(), (Budget(),))


def equal_offers(count: int, price: int) -> list[Offer]:
    return [Offer(f"p{i}", f"p{i}", price) for i in range(count)]


def played(rules: RuleBook, failing: float = 0.0) -> Book:
    """A whole run without a model: gains are random, and some replies fail."""
    accounts, state = Accounts(rules), rules.start()
    rng = np.random.default_rng(rules.terms.seed)
    nothing = torch.zeros(0)
    standing = State(0, nothing, 0.0, None, np.zeros(0), nothing, Best(0, nothing, 0.0))  # only a ledger looks at it
    while rules.stopped(accounts.book) is None:
        round, drawn = accounts.book.rounds, rules.draw(state, accounts.book)
        accounts.reserve(round, drawn)
        values = {i: None if rng.random() < failing else float(rng.normal()) for i in drawn.asked}
        gains = [values[i] for i in drawn.draws.tolist()]
        failures = ["no reply" if gain is None else None for gain in gains]
        paid = rules.pay(drawn, gains)
        result = Settlement(gains, failures, drawn.probabilities.tolist(), paid, 0.0, None, 0.0, None)
        accounts.settle(round, drawn, result, standing)
        state = rules.learn(state, drawn, gains)
    return accounts.book


def assert_within(found: Quote, book: Book) -> None:
    asked = sum(book.drawn.values())
    assert found.rounds.least <= book.rounds <= found.rounds.most
    assert found.accesses.least <= asked <= found.accesses.most
    assert found.least_unspent <= book.left <= found.most_unspent
    for provider in found.providers:
        assert book.pay.get(provider.id, 0) <= provider.can_earn
        assert book.drawn.get(provider.id, 0) <= provider.can_sell
        assert provider.open or provider.id not in book.drawn


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
    n = draw(st.integers(1, 7))
    several = draw(st.booleans()) or equal_offers(n, draw(PRICES))
    limits = st.one_of(st.none(), st.none(), st.integers(1, 500))
    per_round = draw(st.integers(1, 6))
    chosen = st.sampled_from([s for s in SAMPLERS if per_round <= n or s != Uniform(replacement=False)])
    return rules_for(
        [draw(offers(place)) for place in range(n)] if several is True else several,
        budget=draw(st.integers(1, 700)),
        per_round=per_round,
        sampler=draw(chosen),
        seed=draw(st.integers(0, 2**20)),
        most_per_access=draw(limits),
        most_per_round=draw(limits),
    )


@given(markets(), st.sampled_from([0.0, 0.3]))
@settings(max_examples=250, deadline=None)
def test_every_run_lies_within_its_quote(rules: RuleBook, failing: float) -> None:
    found = quote(rules)
    assert_within(found, played(rules, failing))
    for span in (found.rounds, found.accesses):
        assert 0 <= span.least <= span.even <= span.most
    assert [p.open for p in found.providers] == sorted((p.open for p in found.providers), reverse=True)
    assert found.unspent_because or found.most_unspent == 0
    assert found.warnings or found.rounds.most
    assert repr(found).startswith("Quote\n  budget")
