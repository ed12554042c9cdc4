"""Theorem 1: the settings it suggests, its bound, and that the bound holds in a game that changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from one_price import OnePrice

from databazaar import OSMD, BazaarError, Uniform
from databazaar.randomness import draws_stream
from databazaar.samplers import Sampler


def game(providers: int, rounds: int, switches: int, seed: int) -> np.ndarray:
    """Gains [T, n] in [−1, 1]; who is best changes `switches − 1` times."""
    rng = np.random.default_rng(seed)
    gains = rng.uniform(-0.6, 0.2, (rounds, providers))
    best = rng.permutation(providers)
    for stage, when in enumerate(np.array_split(np.arange(rounds), switches)):
        gains[when, best[stage % providers]] = rng.uniform(0.6, 1.0, len(when))
    return gains


def best_of_switching(gains: np.ndarray, switches: int) -> float:
    """max over action sequences that change at most m − 1 times of Σ_t gain: dynamic programming."""
    value = np.full((switches, gains.shape[1]), -np.inf)
    value[0] = 0
    for row in gains:
        arrived = np.vstack([np.full(gains.shape[1], -np.inf), np.tile(value[:-1].max(1)[:, None], gains.shape[1])])
        value = np.maximum(value, arrived) + row
    return float(value.max())


def regret(sampler: Sampler, gains: np.ndarray, per_round: int, switches: int, seed: int) -> float:
    """Realised regret of one play, in which only drawn gains are seen."""
    state, earned = OnePrice(sampler).init(gains.shape[1]), 0.0
    for t, row in enumerate(gains):
        draws = OnePrice(sampler).draw(state, draws_stream(seed, t), per_round)
        earned += row[draws].sum()
        state = OnePrice(sampler).update(state, draws, row[draws])
    return per_round * best_of_switching(gains, switches) - earned


def test_best_of_switching_against_brute_force() -> None:
    from itertools import pairwise, product

    gains = np.random.default_rng(3).uniform(-1, 1, (6, 3))
    for m in (1, 2, 3):
        allowed = (a for a in product(range(3), repeat=6) if sum(x != y for x, y in pairwise(a)) < m)
        assert best_of_switching(gains, m) == pytest.approx(max(gains[np.arange(6), list(a)].sum() for a in allowed))


@pytest.mark.parametrize(("n", "B", "K", "m"), [(100, 5000, 10, 1), (10, 997, 7, 3), (4, 4, 2, 1), (1, 1, 1, 1)])
def test_from_theory_takes_the_papers_values(n: int, B: int, K: int, m: int) -> None:
    sampler = OSMD.from_theory(providers=n, budget=B, per_round=K, switches=m)
    T = B // K
    assert sampler.alpha == pytest.approx(min(1, math.sqrt(n / B)))
    if n * B > 1:
        assert sampler.eta == pytest.approx(math.sqrt(m * math.log(n * B) / (n * T)))
    assert sampler.switches == m


def test_alpha_is_capped_where_fewer_accesses_than_providers_are_bought() -> None:
    assert OSMD.from_theory(providers=50, budget=10, per_round=5).alpha == 1


@pytest.mark.parametrize("bad", [(0, 10, 1, 1), (3, 1, 2, 1), (3, 10, 0, 1), (3, 10, 2, 0), (3, 10, -1, 1)])
def test_from_theory_refuses_what_makes_no_round(bad: tuple[int, int, int, int]) -> None:
    with pytest.raises(BazaarError, match="from_theory"):
        OSMD.from_theory(*bad)


@pytest.mark.parametrize("eta", [0, -1, math.nan, math.inf])
def test_eta_must_be_positive(eta: float) -> None:
    with pytest.raises(BazaarError, match="eta"):
        OSMD(eta=eta, alpha=0.1)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_alpha_must_be_a_share(alpha: float) -> None:
    with pytest.raises(BazaarError, match="alpha"):
        OSMD(eta=1, alpha=alpha)


def test_regret_bound_is_theorem_1() -> None:
    n, B, K, m, eta, alpha = 20, 3000, 5, 4, 0.03, 0.2
    expected = alpha * B + eta * n * B / 2 + m * K * math.log(n / alpha) / eta
    assert OSMD(eta, alpha, switches=m).regret_bound(n, B, K) == pytest.approx(expected)
    assert OSMD(eta, alpha).regret_bound(n, B, K) == pytest.approx(expected - (m - 1) * K * math.log(n / alpha) / eta)
    assert OSMD(eta, 0.0).regret_bound(n, B, K) is None


@pytest.mark.parametrize(("n", "T", "K", "m"), [(5, 3000, 2, 1), (8, 3000, 3, 3)])
def test_regret_of_a_changing_game_stays_under_the_bound(n: int, T: int, K: int, m: int) -> None:
    sampler = OSMD.from_theory(n, T * K, K, m)
    plays = range(2)
    ours = np.mean([regret(sampler, game(n, T, m, seed), K, m, seed) for seed in plays])
    blind = np.mean([regret(Uniform(), game(n, T, m, seed), K, m, seed) for seed in plays])
    bound = sampler.regret_bound(n, T * K, K)
    assert bound is not None
    assert bound < blind  # else the bound would say nothing here, and a sampler that learns nothing would pass
    assert ours <= bound
    assert ours < 0.4 * blind
