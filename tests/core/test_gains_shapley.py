"""Shapley gains: each provider's share of what a round adds to the utility."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import Adaptive, Arbiter, Consumer, Mean, Provider
from databazaar.codes import Code
from databazaar.engines.protocol import Replies
from databazaar.ledger import Drawn
from databazaar.roster import RoundBudget
from databazaar.training import Lesson
from databazaar.training.averaging import AGGREGATOR, Proposed
from databazaar.training.parameters import Parameters

Vector = np.ndarray


def shapley_by_enumeration(utility: Callable[[Vector], float], w: Vector, updates: list[Vector]) -> list[float]:
    """The mean over all orders of what each update adds when it comes, each with a weight of 1/K."""
    values, orders = np.zeros(len(updates)), list(permutations(range(len(updates))))
    for order in orders:
        here = w
        for i in order:
            there = here + updates[i] / len(updates)
            values[i] += utility(there) - utility(here)
            here = there
    return list(values / len(orders))


def always(update: Vector) -> Callable[[Vector], Vector]:
    return lambda _: update


def played(utility: Callable[[Vector], float], updates: list[Vector], w: Vector) -> list[float]:
    """The gains of the first round of a market that asks everybody once."""
    consumer = Consumer(w, budget=len(updates), per_round=len(updates), utility=utility)
    providers = [Provider(f"p{i}", oracle=always(update)) for i, update in enumerate(updates)]
    report = Arbiter(consumer, providers, Adaptive(), engine="loop").run()
    gains = {access.provider: access.gain for access in report.rounds[0].accesses}
    return [gain for i in range(len(updates)) if (gain := gains[i]) is not None]


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_where_the_utility_is_quadratic_they_are_the_shapley_values(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root, slope, w = rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3).astype(np.float32).astype(float)
    updates = [u.astype(np.float32).astype(float) for u in rng.normal(size=(count, 3))]

    def utility(v: Vector) -> float:
        return float(slope @ v - 0.5 * v @ root @ root.T @ v)

    found = played(utility, updates, w)
    exact = shapley_by_enumeration(utility, w, updates)
    assert found == pytest.approx(exact, abs=1e-4)
    rise = utility(w + sum(updates) / count) - utility(w)
    assert sum(found) == pytest.approx(rise, abs=1e-4)  # nothing is left over


def test_where_it_is_not_they_are_close() -> None:
    """A log loss: closer to the Shapley value than what the round loses without a provider."""
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(50, 3)), rng.random(50) < 0.5

    def utility(v: Vector) -> float:
        return -float(np.logaddexp(0.0, np.where(labels, -1.0, 1.0) * (rows @ v)).mean())

    w, updates = np.zeros(3), [u.astype(np.float32).astype(float) for u in rng.normal(size=(4, 3))]
    found, exact = played(utility, updates, w), shapley_by_enumeration(utility, w, updates)
    whole = utility(w + sum(updates) / 4)
    lost = [whole - utility(w + (sum(updates) - u) / 3) for u in updates]

    def error(gains: list[float]) -> float:
        return max(abs(gain - value) for gain, value in zip(gains, exact, strict=True))

    assert error(found) < 0.03 * max(map(abs, exact))
    assert error(lost) > 0.1 * max(map(abs, exact))


def test_who_sends_nothing_gains_nothing_and_two_alike_gain_alike() -> None:
    def utility(v: Vector) -> float:
        return -float(((v - 1.0) ** 2).sum())

    helps, nothing = np.array([0.5, 0.25]), np.zeros(2)
    found = played(utility, [helps, nothing, helps, -helps], np.zeros(2))
    assert found[1] == 0.0
    assert found[0] == found[2] > 0 > found[3]


def test_a_draw_counts_as_often_as_it_was_made_and_the_consumers_update_as_one_more() -> None:
    """Draws 0, 1, 0 of which 1 failed, and the consumer's own update: a game of three players, one of them twice."""
    rng = np.random.default_rng(8)
    root, slope = rng.normal(size=(3, 3)), rng.normal(size=3)

    def utility(v: Vector) -> float:
        return float(slope @ v - 0.5 * v @ root @ root.T @ v)

    w, first, own = (torch.from_numpy(rng.normal(size=3)) for _ in range(3))
    drawn = Drawn(np.array([0, 1, 0]), np.ones(3), RoundBudget(9, np.ones(2, dtype=np.int64)))
    replies = Replies(torch.stack([first, torch.zeros_like(first)]), {1: Code("no-answer")})
    lesson = Lesson(Parameters(w), {AGGREGATOR: w.new_empty(0)}, 0.0, None, drawn, replies, round=0, gains="shapley")
    models = Proposed(Mean(), lesson, 1.0, own).models.double().numpy()
    exact = shapley_by_enumeration(utility, w.numpy(), [first.numpy(), first.numpy(), own.numpy()])
    assert utility(models[0]) - utility(models[2]) == pytest.approx(exact[0] + exact[1], abs=1e-5)
    assert models[-1] == pytest.approx((w + (2 * first + own) / 3).numpy(), abs=1e-5)


def peak(w: Vector) -> float:
    return float(np.exp(-np.sum((w - 1.0) ** 2)))


def pull(target: list[float]) -> Callable[[Vector], Vector]:
    return lambda w: 0.5 * (np.array(target) - w)


def test_who_does_nothing_earns_least_though_every_single_update_does_harm() -> None:
    """Two sellers know opposite halves of the truth: alone each leads away from it, and together they lead there."""
    consumer = Consumer(np.array([0.9, 0.9]), budget=300, per_round=6, utility=peak)
    oracles: dict[str, Callable[[Vector], Vector]] = {
        "left": pull([4.0, -2.0]),
        "right": pull([-2.0, 4.0]),
        "idle": lambda w: np.zeros(2),
    }
    providers = [Provider(name, oracle=oracle) for name, oracle in oracles.items()]
    report = Arbiter(consumer, providers, engine="loop").run()
    pay = {payout.provider: payout.pay for payout in report.payouts}
    alone = [peak(oracle(np.ones(2)) + 1.0) - 1.0 for oracle in oracles.values()]
    assert alone[2] == 0.0 > max(alone[:2])  # by the paper's gain the idle one is the best of the three
    assert pay["idle"] < min(pay["left"], pay["right"])


def test_whose_update_leaves_no_utility_is_found_out_alone() -> None:
    def judge(w: Vector) -> float:
        return peak(w) if np.abs(w).max() < 1e6 else float("nan")

    consumer = Consumer(np.zeros(2), budget=40, per_round=4, utility=judge)
    oracles: dict[str, Callable[[Vector], Vector]] = {"fine": pull([1.0, 1.0]), "mad": lambda w: np.full(2, 1e9)}
    providers = [Provider(name, oracle=oracle) for name, oracle in oracles.items()]
    report = Arbiter(consumer, providers, engine="loop").run()
    fine, mad = report.payouts
    assert (fine.failures, mad.accesses, mad.pay) == (0, 0, 0) and fine.accesses > 0 and mad.failures > 0
    reasons = {access.failure for played in report.rounds for access in played.accesses if access.failure}
    assert Code("no-utility") in reasons
    assert report.final_utility > 0.9
