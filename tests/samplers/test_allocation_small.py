"""The benchmark of allocation with few seeds: what is far apart there is apart here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allocation_markets import Market, logistic, markets
from databazaar import OSMD, Adaptive, Uniform
from databazaar.samplers import Sampler

ROWS = ["equal prices, logistic", "one good at 500, rest mediocre at 5", "prices 1 to 1,000"]


def losses(row: str, sampler: Sampler) -> float:
    return float(np.mean([markets(None)[row](seed).play(sampler, seed)[0] for seed in range(3)]))


@pytest.mark.parametrize("row", ROWS)
def test_untuned_samplers_are_far_ahead_of_uniform_buying(row: str) -> None:
    uniform = losses(row, Uniform())
    assert losses(row, Adaptive()) < uniform - 0.05


def at_own_price(market: Market, place: int, price: int) -> Market:
    return replace(market, prices=[price if i == place else 20 for i in range(40)])


def test_a_bad_provider_gains_nothing_by_being_dear_unless_prices_are_ignored() -> None:
    def earned(sampler: Sampler) -> float:
        pays = [at_own_price(logistic(seed), 39, 300).play(sampler, seed)[1].get("p39", 0) for seed in range(6)]
        return float(np.mean(pays))

    assert earned(Adaptive()) <= 150, "an even share of the budget"
    assert earned(OSMD(3, 0.05)) > 200
