"""The price that a price is compared with: that of those who are as good or better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.samplers.adaptive import SHARPNESS, log_peer_prices

WORTHS = st.one_of(st.sampled_from([0.0, 0.0, 1.0, -2.5]), st.floats(-40, 40))
MARKETS = st.lists(st.tuples(WORTHS, st.integers(1, 10**9)), min_size=1, max_size=25)


def slow_reference(worth: list[float], logs: list[float]) -> list[float]:
    """Σ_j m_ij log c_j / Σ_j m_ij with m_ij = min(1, e^(2(ℓ_j − ℓ_i))), one pair at a time."""
    found = []
    for mine in worth:
        m = [math.exp(min(0.0, SHARPNESS * (other - mine))) for other in worth]
        found.append(math.fsum(a * b for a, b in zip(m, logs, strict=True)) / math.fsum(m))
    return found


def peers(worth: list[float], prices: list[float]) -> np.ndarray:
    return np.exp(log_peer_prices(np.array(worth), np.log(prices)))


@given(MARKETS)
def test_it_is_what_looking_at_every_pair_gives(market: list[tuple[float, int]]) -> None:
    worth, logs = [ell for ell, _ in market], [math.log(price) for _, price in market]
    fast = log_peer_prices(np.array(worth), np.array(logs))
    np.testing.assert_allclose(fast, slow_reference(worth, logs), rtol=1e-9, atol=1e-9)


@given(MARKETS, st.integers(0, 1000))
def test_the_order_of_providers_does_not_matter(market: list[tuple[float, int]], seed: int) -> None:
    worth, logs = np.array([ell for ell, _ in market]), np.log([float(price) for _, price in market])
    order = np.random.default_rng(seed).permutation(len(market))
    np.testing.assert_allclose(log_peer_prices(worth[order], logs[order]), log_peer_prices(worth, logs)[order])


@given(MARKETS, st.floats(-300, 300), st.integers(2, 1000))
def test_only_differences_of_worth_count_and_prices_in_another_coin_change_nothing(
    market: list[tuple[float, int]], offset: float, coin: int
) -> None:
    worth, logs = np.array([ell for ell, _ in market]), np.log([float(price) for _, price in market])
    plain = log_peer_prices(worth, logs)
    np.testing.assert_allclose(log_peer_prices(worth + offset, logs), plain, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_peer_prices(worth, logs + math.log(coin)), plain + math.log(coin), atol=1e-9)


@given(MARKETS)
def test_it_lies_between_the_cheapest_and_the_dearest(market: list[tuple[float, int]]) -> None:
    prices = [float(price) for _, price in market]
    found = peers([ell for ell, _ in market], prices)
    assert (found >= min(prices) * (1 - 1e-9)).all() and (found <= max(prices) * (1 + 1e-9)).all()


def test_who_has_no_equal_is_compared_with_its_own_price() -> None:
    assert peers([9.0, 0.0, 0.0], [50.0, 1.0, 2.0])[0] == pytest.approx(50.0, rel=1e-6)


def test_what_worse_ones_ask_does_not_pull_a_good_ones_price_down_but_betters_do_pull_a_worse_ones() -> None:
    cheap_and_bad = peers([6.0, 6.0, 0.0], [20.0, 20.0, 1.0])
    assert cheap_and_bad[0] == pytest.approx(20.0, rel=1e-4)
    assert peers([6.0, 6.0, 0.0], [1.0, 1.0, 20.0])[2] == pytest.approx(20.0 ** (1 / 3))


@pytest.mark.parametrize("far", [1e3, 1e6, 1e300])
def test_however_far_apart_providers_are_nothing_overflows(far: float) -> None:
    found = peers([far, 0.0, -far, far], [1.0, 1e9, 5.0, 1e9])
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(found[3]) == pytest.approx(math.sqrt(1e9))
