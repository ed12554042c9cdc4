"""What a buyer gets with defaults on a real table, where most providers have wrong labels: the benchmark in small."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bench_real import one_market, pays_of, toy_market
from real_tables import Tables

SEEDS = range(3)
FIVE = partial(load_digits, n_class=5)
"""Half of the digits: each has trees of its own, which take their time."""


def digits(own: int, seed: int) -> Tables:
    return toy_market(FIVE, own=own, test=200, providers=9, dirty=True)(seed)


@pytest.mark.slow
def test_the_market_beats_uniform_buying_and_everything_pooled() -> None:
    found = np.array([one_market(digits(75, seed), seed) for seed in SEEDS])
    market, _, own, pooled, uniform, accuracy, *_ = found.T
    assert (market < 0.6 * pooled).all()
    assert market.mean() < uniform.mean()
    assert market.mean() < own.mean() + 0.05
    assert (accuracy > 0.85).all()


@pytest.mark.slow
def test_pay_follows_quality_and_not_the_seed(tmp_path: Path) -> None:
    pay = pays_of(digits(150, 0).write(tmp_path), len(SEEDS))
    assert np.corrcoef(pay)[np.triu_indices(len(pay), 1)].min() > 0.8
    assert (pay[:, :3].sum(1) > 3 * pay[:, -3:].sum(1)).all(), "labels are 0 to 22 % and 68 to 90 % wrong"
