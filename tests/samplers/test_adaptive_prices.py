"""The default sampler and money: what a provider earns at its own price, and what wears off."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_markets import chances, learned, played, start
from databazaar.samplers.adaptive import ELASTICITY


def test_among_equals_the_dearer_is_asked_less_often() -> None:
    prices = [4, 2, 1, 8]
    p = chances(start(prices, 2), prices)
    assert np.argsort(p).tolist() == np.argsort(prices)[::-1].tolist()
    ratio = p[1] / p[0]  # the same peers, twice the price
    assert ratio == pytest.approx(2**ELASTICITY)


def test_before_anything_is_known_a_higher_price_earns_less_too() -> None:
    earned = []
    for price in (20, 80, 300, 1000):
        prices = [price] + [20] * 39
        p = chances(start(prices, 10), prices)
        earned.append(p[0] * price / (p @ np.array(prices)))
    assert earned == sorted(earned, reverse=True) and earned[-1] < 0.7 * earned[0], earned


def test_a_price_above_the_others_of_the_same_quality_does_not_pay() -> None:
    """One provider's share of the money by its own price, where nine are as good, which is known, and ask 20."""
    everybody = [(np.arange(10), np.zeros(10))] * 50
    earned = []
    for price in (20, 80, 300, 1000):
        prices = [20, price] + [20] * 8
        p = chances(learned(everybody, prices, 5), prices)
        earned.append(p[1] * price / (p @ np.array(prices)))
    assert earned == sorted(earned, reverse=True), earned


def test_nor_does_it_in_a_long_market_of_data_that_wear_off() -> None:
    """Who asks more than its equals is asked less often; its data stay fresh, and must not be bought again for that."""
    shares = []
    for price in (20, 80, 600):
        prices, money = [price] + [20] * 19, np.zeros(2)
        for seed in range(4):
            _, drawn = played([1.0] * 5 + [0.0] * 15, prices, 5, 400, noise=0.5, seed=seed)
            money += drawn[0] * price, drawn @ np.array(prices)
        shares.append(money[0] / money[1])
    assert shares[0] > shares[1] > shares[2], shares


def test_a_bad_provider_earns_nothing_by_being_dear() -> None:
    for price in (20, 200, 2000):
        prices = [price, 20, 20, 20, 20]
        _, drawn = played([-5.0, 1.0, 1.0, 1.0, 1.0], prices, 3, 400)
        share = drawn[0] * price / (drawn @ np.array(prices))
        assert share < 0.05 or drawn[0] <= 2, (price, share, drawn)  # a first look is not to be had for less


def test_the_wear_of_the_good_does_not_bring_back_the_bad() -> None:
    """A long market: what is known to be bad is asked no more often because the others have been asked so often."""
    brings, prices = [1.0, 1.0, 1.0, 1.0, -5.0], [20, 20, 20, 20, 100]
    state, _ = played(brings, prices, 3, 300)
    _, later = played(brings, prices, 3, 3000, state=state, seed=1)
    assert later[4] * 100 < 0.02 * (later @ np.array(prices)), later
