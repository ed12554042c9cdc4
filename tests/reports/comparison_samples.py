"""Comparisons made up for the tests: random, and consistent the way `compare` makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from databazaar.training.parameters import Parameters
from databazaar.valuation import Comparison, Cost, MethodOutcome, Trained, ValuationResult, payouts, stability
from databazaar.valuation.comparison import spearman

FIVE = ("osmd", "uniform", "g-shapley", "fedsv", "loo")


def sample_comparison(
    names: Sequence[str] = ("north", "south", "east"),
    methods: Sequence[str] = FIVE,
    *,
    seeds: int = 1,
    budget: int = 100_000,
    seed: int = 0,
) -> Comparison:
    """Uniform pays everybody alike; the others agree on who is worth what, up to noise."""
    import torch

    rng = np.random.default_rng(seed)
    worth = np.exp(rng.permutation(np.linspace(1.5, -1.5, len(names))))
    outcomes = []
    for place, method in enumerate(methods):
        results, paid = [], []
        for _ in range(seeds):
            values = np.ones(len(names)) if method == "uniform" else worth * np.exp(rng.normal(0, 0.1, len(names)))
            cost = Cost(10 * 7**place, 30 * 7**place, place, 0, 0.02 * 5**place)
            trained = Trained(Parameters(torch.zeros(1)), 0.75) if place % 2 == 0 else None
            zeros = np.zeros(len(names))
            stopped = "the cap of 500 permutations"
            results.append(ValuationResult(method, tuple(names), values, zeros, stopped, cost, trained))
            paid.append(payouts(values, budget))
        amounts = np.array(paid, dtype=np.int64)
        sure = stability(names, amounts) if seeds > 2 else None
        outcomes.append(MethodOutcome(method, tuple(results), amounts, sure))
    means = np.array([outcome.payouts.mean(0) for outcome in outcomes])
    every = tuple(range(seeds))
    return Comparison(tuple(names), budget, "positive", every, tuple(outcomes), spearman(means))
