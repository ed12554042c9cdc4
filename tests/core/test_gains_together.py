"""Gains of a round together: what its model loses without a provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, Consumer, Mean, Provider
from databazaar.codes import Code
from databazaar.engines.protocol import Replies
from databazaar.ledger import Drawn
from databazaar.market.round import propose
from databazaar.market.state import Best, State
from databazaar.roster import RoundBudget
from own_samplers import Together

Vector = np.ndarray


@dataclass(frozen=True)
class PlainMean(Mean):
    """The mean as a rule that the round does not know: its models are made one after the other."""


def utility(w: Vector) -> float:
    return float(np.exp(-np.sum((w - 1.0) ** 2)))


def pull(target: list[float]) -> Callable[[Vector], Vector]:
    return lambda w: 0.5 * (np.array(target) - w)


def test_a_gain_is_what_the_rounds_model_loses_without_the_provider() -> None:
    targets = [[3.0, 0.0], [0.0, 3.0], [1.0, 1.0]]
    consumer = Consumer(np.zeros(2), budget=40, per_round=4, utility=utility)
    providers = [Provider(f"p{i}", oracle=pull(target)) for i, target in enumerate(targets)]
    report = Arbiter(consumer, providers, Together(), engine="loop").run()
    w = np.zeros(2)
    for played in report.rounds:
        drawn = [access.provider for access in played.accesses]
        moved = {i: pull(targets[i])(w) for i in set(drawn)}

        def after(draws: list[int], start: Vector = w, moved: dict[int, Vector] = moved) -> Vector:
            return start + np.mean([moved[i] for i in draws], axis=0) if draws else start

        for access in played.accesses:
            others = [i for i in drawn if i != access.provider]
            gain = (utility(after(drawn)) - utility(after(others))) / drawn.count(access.provider)
            assert access.gain == pytest.approx(gain, abs=1e-6)
        w = after(drawn)


@given(
    draws=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    failing=st.sets(st.integers(0, 4), max_size=5),
    own=st.booleans(),
    seed=st.integers(0, 99),
    gains=st.sampled_from(["together", "shapley"]),
)
def test_the_means_one_product_gives_what_one_after_the_other_gives(
    draws: list[int], failing: set[int], own: bool, seed: int, gains: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    asked = list(dict.fromkeys(draws))
    failures = {i: Code("no-answer") for i in asked if i in failing}
    updates = torch.randn(len(asked), 6, generator=generator)
    params, of_own = torch.randn(6, generator=generator), torch.randn(6, generator=generator) if own else None
    state = State(0, params, 0.0, None, np.zeros(1), params.new_empty(0), Best(0, params, 0.0))
    drawn = Drawn(np.array(draws), np.ones(len(draws)), RoundBudget(9, np.ones(5, dtype=np.int64)))
    replies = Replies(updates, failures)
    fast, slow = (propose(rule, state, drawn, replies, 0.7, of_own, gains) for rule in (Mean(), PlainMean()))
    torch.testing.assert_close(fast.models, slow.models)


def test_who_does_nothing_earns_least_though_every_single_update_does_harm() -> None:
    """Two sellers know opposite halves of the truth: alone each leads away from it, and together they lead there."""
    consumer = Consumer(np.array([0.9, 0.9]), budget=300, per_round=6, utility=utility)
    oracles: dict[str, Callable[[Vector], Vector]] = {
        "left": pull([4.0, -2.0]),
        "right": pull([-2.0, 4.0]),
        "idle": lambda w: np.zeros(2),
    }
    providers = [Provider(name, oracle=oracle) for name, oracle in oracles.items()]
    report = Arbiter(consumer, providers, engine="loop").run()
    pay = {payout.provider: payout.pay for payout in report.payouts}
    alone = [utility(oracle(np.ones(2)) + 1.0) - 1.0 for oracle in oracles.values()]
    assert alone[2] == 0.0 > max(alone[:2])  # by the paper's gain the idle one is the best of the three
    assert pay["idle"] < min(pay["left"], pay["right"])


def test_whose_update_leaves_no_utility_is_found_out_alone() -> None:
    def judge(w: Vector) -> float:
        return utility(w) if np.abs(w).max() < 1e6 else float("nan")

    consumer = Consumer(np.zeros(2), budget=40, per_round=4, utility=judge)
    oracles: dict[str, Callable[[Vector], Vector]] = {"fine": pull([1.0, 1.0]), "mad": lambda w: np.full(2, 1e9)}
    providers = [Provider(name, oracle=oracle) for name, oracle in oracles.items()]
    report = Arbiter(consumer, providers, engine="loop").run()
    fine, mad = report.payouts
    assert (fine.failures, mad.accesses, mad.pay) == (0, 0, 0) and fine.accesses > 0 and mad.failures > 0
    reasons = {access.failure for played in report.rounds for access in played.accesses if access.failure}
    assert Code("no-utility") in reasons
    assert report.final_utility > 0.9
