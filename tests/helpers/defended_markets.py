"""Markets with a defence and without a model: gains and findings are made up, and all that follows is by the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from databazaar import Uniform
from databazaar.codes import Code
from databazaar.defence import Defence, Findings
from databazaar.ledger import Accounts, Drawn, Ledger, RuleBook, Settlement, Terms
from databazaar.market.state import Best, State
from databazaar.money import Currency
from databazaar.payments import PAYMENTS, Payment, PricePerAccess
from databazaar.roster import ProviderTerms, Roster
from databazaar.samplers import SAMPLERS, Sampler
from databazaar.stops import STOPS, Budget
from databazaar.training.parameters import Parameters
from own_samplers import Valued

MODEL = Parameters(torch.zeros(1))
EVERY_RULE = Defence(owners=True, alike=0.7, screen=3.0, leak=0.01, data=2.5, cap=0.4)
Measured = Callable[[int, Drawn], tuple[dict[int, float | None], Findings | None]]
"""The gains of those asked in a round, and the findings."""


def rules_with(
    defence: Defence,
    offers: Sequence[ProviderTerms],
    *,
    budget: int,
    per_round: int = 3,
    sampler: Sampler | None = None,
    payment: Payment | None = None,
    seed: int = 0,
    **limits: Any,
) -> RuleBook:
    sampler, payment = sampler or Valued(), payment or PricePerAccess()
    terms = Terms(
        seed=seed,
        budget=budget,
        per_round=per_round,
        currency=Currency("EUR", 2),
        roster=Roster(tuple(offers)),
        rules={
            "sampler": SAMPLERS.settings_of(sampler),
            "aggregator": {"kind": "mean"},
            "payment": PAYMENTS.settings_of(payment),
            "stops": [STOPS.settings_of(Budget())],
            **({} if defence.off else {"defence": defence.settings()}),
        },
        bounded_utility=False,
        initial_model=MODEL.stored.hash,
        **limits,
    )
    return RuleBook(terms, sampler, payment, (Budget(),))


def random_measures(seed: int, *, failing: float = 0.1, flags: float = 0.05, alike: float = 0.1) -> Measured:
    """Gains and findings by chance. Every round has its own stream: a run that is resumed hears the same."""

    def measure(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings | None]:
        rng, asked, n = np.random.default_rng([seed, round]), drawn.asked, len(drawn.round_budget.quotes)
        gains = {i: None if rng.random() < failing else float(rng.normal()) for i in asked}

        def figures(draw: Callable[[], float], silent: float = 0.2) -> list[float | None]:
            return [None if gains[i] is None or rng.random() < silent else draw() for i in asked]

        pairs = []
        if n > 1 and rng.random() < alike:
            one, other = sorted(rng.choice(n, 2, replace=False).tolist())
            pairs.append((one, other, float(rng.random())))
        error = figures(lambda: float(rng.uniform(0.01, 1.0)), 0.0)
        return gains, Findings(
            harm=figures(lambda: float(rng.normal(1.0, 2.0))),
            leak=figures(lambda: 9.0 if rng.random() < flags else float(rng.normal())),
            signal=figures(lambda: 0.0 if rng.random() < flags else float(rng.uniform(0.2, 1.5))),
            error=error,
            alike=pairs,
        )

    return measure


def offers_of(prices: list[int], owners: int, **more: Any) -> list[ProviderTerms]:
    return [ProviderTerms(f"p{i}", f"owner {i % owners}", price, **more) for i, price in enumerate(prices)]


def scripted(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings | None]:
    """Everybody is asked in every round. p0 is cleared with its eighth answer and p1 flagged with its fourth; p2 is
    doubted in the end, and of p3 nothing is ever known. In one round p3 fails."""
    gains = {i: None if (i, round) == (3, 5) else 0.01 * i for i in drawn.asked}
    leak, signal = {1: 99.0 if round == 3 else 0.5}, {0: 1.0, 2: 0.1}
    return gains, Findings(
        leak=[leak.get(i) for i in drawn.asked],
        signal=[signal.get(i) for i in drawn.asked],
        error=[0.2 if i in signal else None for i in drawn.asked],
        alike=[(2, 3, 0.9)] if round == 6 else [],
    )


def scripted_rules(**more: Any) -> RuleBook:
    sampler = Uniform(replacement=False)
    offers = [ProviderTerms(f"p{i}", f"p{i}", 50) for i in range(4)]
    return rules_with(replace(EVERY_RULE, cap=None), offers, budget=1900, per_round=4, sampler=sampler, **more)


def standing_at(round: int, state: np.ndarray) -> State:
    """Where a round leaves a market whose model never moves."""
    return State(round, MODEL, 0.5, None, state, {}, Best(0, MODEL, 0.5))


def play_round(rules: RuleBook, accounts: Accounts, state: np.ndarray, measure: Measured) -> np.ndarray:
    """One round, from the draw to the settlement; the state after it."""
    round, drawn = accounts.book.rounds, rules.draw(state, accounts.book)
    accounts.reserve(round, drawn)
    by_provider, findings = measure(round, drawn)
    draws, before, after = drawn.draws.tolist(), standing_at(round, state), standing_at(round + 1, state)
    gains, chances = [by_provider[i] for i in draws], drawn.probabilities.tolist()
    settled = rules.settle(state, drawn, gains, chances, findings)
    failures = [Code("no-answer") if gain is None else None for gain in gains]
    scores = before.utility, None, after.utility, None
    later = settled.held, settled.released, settled.returned, None if rules.defence.off else findings
    result = Settlement(gains, failures, chances, settled.paid, *scores, (), *later)
    accounts.settle(round, drawn, result, replace(after, sampler=settled.state))
    return np.asarray(settled.state)


def play(rules: RuleBook, measure: Measured, accounts: Accounts | None = None, state: Any = None) -> Accounts:
    """A whole run."""
    accounts, state = accounts or Ledger(rules), rules.start() if state is None else state
    while rules.stopped(accounts.book) is None:
        state = play_round(rules, accounts, state, measure)
    stopped, book = rules.stopped(accounts.book), accounts.book
    assert stopped is not None
    accounts.settle_held_back(rules.returned_at_close(state))
    accounts.close(stopped, standing_at(book.rounds, state))
    return accounts
