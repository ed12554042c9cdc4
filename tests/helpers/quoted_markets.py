"""Rule books of markets without a model, and whole runs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from databazaar import PricePerAccess, Uniform
from databazaar.codes import Code
from databazaar.ledger import Accounts, Book, RuleBook, Settlement, Terms
from databazaar.market.state import Best, State
from databazaar.money import Currency
from databazaar.payments import Payment
from databazaar.roster import ProviderTerms, Roster, RoundBudget
from databazaar.samplers import Sampler
from databazaar.samplers.protocol import Draws, Vector, Wants, among_affordable
from databazaar.stops import Budget
from databazaar.training.parameters import Parameters
from own_samplers import Valued


@dataclass(frozen=True)
class Stubborn:
    """Draws those at one end of the prices, whoever is available; or first one of the one end, then the other's."""

    dearest: bool
    mixed: bool
    kind: ClassVar[str] = "test-stubborn"
    wants: ClassVar[Wants] = Wants()
    alpha: ClassVar[float] = 0.5

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        return np.full(len(roster), 1 / len(roster))

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        return among_affordable(state, round_budget)

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        there = np.flatnonzero(round_budget.available)
        rising = there[np.argsort(round_budget.quotes[there], kind="stable")]
        first, others = (rising[-1], rising[0]) if self.dearest else (rising[0], rising[-1])
        return np.array([first, *[others if self.mixed else first] * (size - 1)])

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        return state

    def exploration(self, round_budget: RoundBudget) -> Vector:
        return 0.5 * round_budget.quotes / len(round_budget.quotes)


@dataclass(frozen=True)
class Even(Uniform):
    """Gives everybody who can be asked the same share of the money, for ever."""

    kind: ClassVar[str] = "test-even"

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        p = among_affordable(1 / round_budget.quotes, round_budget)
        return np.asarray(p / p.sum())

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        return rng.choice(len(round_budget.quotes), size, p=self.probabilities(state, round_budget))


def rules_for(
    offers: Sequence[ProviderTerms],
    *,
    budget: int,
    per_round: int,
    sampler: Sampler | None = None,
    payment: Payment | None = None,
    seed: int = 0,
    **limits: Any,
) -> RuleBook:
    terms = Terms(
        seed=seed,
        budget=budget,
        per_round=per_round,
        currency=Currency("EUR", 2),
        roster=Roster(tuple(offers)),
        rules={"sampler": {"kind": "none that is looked up"}},
        bounded_utility=True,
        initial_model="",
        **limits,
    )
    return RuleBook(terms, sampler or Valued(), payment or PricePerAccess(), (Budget(),))


def offers_at(*prices: int) -> list[ProviderTerms]:
    return [ProviderTerms(f"p{i}", f"p{i}", price) for i, price in enumerate(prices)]


def played(rules: RuleBook, failing: float = 0.0, gain: float = 1.0) -> Book:
    """A whole run without a model: gains are random, about as large as `gain`, and some replies fail."""
    accounts, state = Accounts(rules), rules.start()
    rng = np.random.default_rng(rules.terms.seed)
    nothing = Parameters(torch.zeros(0))
    standing = State(0, nothing, 0.0, None, np.zeros(0), {}, Best(0, nothing, 0.0))  # only a ledger looks at it
    while rules.stopped(accounts.book) is None:
        round, drawn = accounts.book.rounds, rules.draw(state, accounts.book)
        accounts.reserve(round, drawn)
        values = {i: None if rng.random() < failing else gain * float(rng.normal()) for i in drawn.asked}
        gains = [values[i] for i in drawn.draws.tolist()]
        failures = [Code("no-answer") if gain is None else None for gain in gains]
        paid = rules.pay(drawn, gains)
        result = Settlement(gains, failures, drawn.probabilities.tolist(), paid, 0.0, None, 0.0, None)
        accounts.settle(round, drawn, result, standing)
        state = rules.learn(state, drawn, gains)
    return accounts.book
