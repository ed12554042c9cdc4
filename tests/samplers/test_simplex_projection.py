"""Algorithm 2 is the constrained optimum of equation (OSMD-update), found by other means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from one_price import OnePrice
from scipy.optimize import brentq, minimize

from databazaar import OSMD
from databazaar.samplers.osmd import project_clipped_simplex

EPS = np.finfo(float).eps


def by_bisection(log_weights: np.ndarray, alpha: float) -> np.ndarray:
    """The optimum through its dual: q_i = max(α/n, y_i e^{−λ}), where λ makes the sum 1."""
    n = len(log_weights)
    floor, shifted = alpha / n, np.asarray(log_weights, dtype=np.longdouble)
    shifted = (shifted - shifted.max()).astype(float)

    def excess(multiplier: float) -> float:
        return float(np.maximum(floor, np.exp(shifted - multiplier)).sum() - 1)

    # at λ = 0 the largest alone is 1; at λ = log n nobody is above 1/n
    low, high = -1e-12, np.log(n) + 1e-12
    root = high if excess(high) >= 0 else brentq(excess, low, high, xtol=1e-15, rtol=4 * EPS, maxiter=500)
    return np.asarray(np.maximum(floor, np.exp(shifted - root)))


def by_the_book(p: np.ndarray, estimate: np.ndarray, eta: float, alpha: float) -> np.ndarray:
    """Algorithm 2, line by line, with the paper's one-based indices."""
    n = len(p)
    moved = [p[i] * np.exp(eta * estimate[i]) for i in range(n)]  # line 3
    order = sorted(range(n), key=lambda i: moved[i])  # line 4: order[i − 1] is π(i)
    star = None
    for i in range(1, n + 1):
        v = moved[order[i - 1]] * (1 - (i - 1) / n * alpha)  # line 5
        u = alpha / n * sum(moved[order[j - 1]] for j in range(i, n + 1))  # line 6
        if v > u:  # line 7
            star = i
            break
    if star is None:  # α = 1: the clipped simplex is one point
        return np.full(n, 1 / n)
    total = sum(moved[order[j - 1]] for j in range(star, n + 1))
    q = np.empty(n)
    for rank, i in enumerate(order, start=1):  # line 8
        q[i] = alpha / n if rank < star else (1 - (star - 1) / n * alpha) * moved[i] / total
    return q


def assert_feasible(q: np.ndarray, alpha: float) -> None:
    assert np.isfinite(q).all()
    assert q.sum() == pytest.approx(1, abs=1e-12 * max(len(q), 10))
    floor = alpha / len(q)
    rounded = 4 * EPS * (len(q) + abs(np.log(floor or 1.0)))  # log q is exact to EPS · |log q|, and so is q relatively
    assert (q >= floor * (1 - rounded)).all()


def assert_optimal(log_q: np.ndarray, log_weights: np.ndarray, alpha: float) -> None:
    """KKT: log q_i − log y_i is one constant where q is above the floor, and no smaller at the floor."""
    floor = np.log(alpha / len(log_q)) if alpha else -np.inf
    free = log_q > floor + 1e-9
    if not free.any():
        assert alpha == pytest.approx(1, abs=1e-8)
        return
    slack = log_q - (log_weights - log_weights.max())
    slip = 1e-8 + 8 * EPS * np.abs(log_weights).max()
    assert np.ptp(slack[free]) <= slip
    assert (slack[~free] >= slack[free].max() - slip).all()


alphas = st.one_of(st.sampled_from([0.0, 1e-12, 1e-3, 0.5, 1 - 1e-12, 1.0]), st.floats(0, 1, allow_subnormal=False))
weights = st.lists(
    st.one_of(
        st.floats(-5, 5),
        st.sampled_from([0.0, 1.0, -1.0, 1e6, -1e6, 1e9, -1e9, 700.0, -745.0, -800.0]),
        st.floats(-1e6, 1e6),
    ),
    min_size=1,
    max_size=12,
)


@given(weights, alphas)
@example([0.0], 0.0)
@example([0.0], 1.0)
@example([3.0] * 7, 0.4)
@example([0.0, 0.0, 0.0], 1.0)
@example([1e6, -1e6, 1e6, 0.0], 1.0)
@example([1e6, -1e6, 1e6, 0.0], 0.0)
@example([1e6, -1e6, 1e6, 0.0], 0.3)
@example([0.0, 0.0, 0.0, 1e6], 5.604842581554512e-256)
def test_projection_is_the_constrained_optimum(values: list[float], alpha: float) -> None:
    log_weights = np.array(values)
    given = log_weights.copy()
    log_q = project_clipped_simplex(log_weights, alpha)
    q = np.exp(log_q)
    assert (log_weights == given).all()
    assert_feasible(q, alpha)
    assert_optimal(log_q, log_weights, alpha)
    np.testing.assert_allclose(q, by_bisection(log_weights, alpha), rtol=0, atol=1e-8)


@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 0.8]))
def test_projection_agrees_with_a_general_purpose_solver(n: int, seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n)) * (1 - alpha) + alpha / n
    estimate, eta = rng.normal(size=n), 0.7

    def objective(q: np.ndarray) -> float:
        return float(-eta * q @ estimate + (q * np.log(q / p)).sum() - q.sum() + p.sum())

    def slope(q: np.ndarray) -> np.ndarray:
        return -eta * estimate + np.log(q / p)

    found = minimize(
        objective,
        np.full(n, 1 / n),
        jac=slope,
        method="SLSQP",
        bounds=[(alpha / n, 1.0)] * n,
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1, "jac": lambda q: np.ones(n)},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    q = np.exp(project_clipped_simplex(np.log(p) + eta * estimate, alpha))
    assert objective(q) <= objective(np.clip(found.x, alpha / n, 1)) + 1e-9
    np.testing.assert_allclose(q, found.x, atol=2e-5)


@given(st.integers(1, 30), st.integers(0, 2**32 - 1), st.floats(0.01, 3), alphas)
def test_projection_equals_the_algorithm_as_printed(n: int, seed: int, eta: float, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n)) * (1 - alpha) + alpha / n + 1e-12
    p /= p.sum()
    estimate = rng.normal(size=n).round(1)  # rounded: ties happen
    q = np.exp(project_clipped_simplex(np.log(p) + eta * estimate, alpha))
    np.testing.assert_allclose(q, by_the_book(p, estimate, eta, alpha), atol=1e-9)


@st.composite
def steps(draw: st.DrawFn) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    """η, α, p in the clipped simplex (at the floor in places), draws, and one gain per provider drawn."""
    n, alpha = draw(st.integers(1, 9)), draw(alphas)
    eta = draw(st.floats(1e-3, 2))
    raw = np.array(draw(st.lists(st.floats(0.05, 1), min_size=n, max_size=n)))
    floored = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    if floored.all():
        floored[0] = False
    raw[floored] = 0 if alpha >= 1e-3 else 0.01
    p = alpha / n + (1 - alpha) * raw / raw.sum()
    draws = np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6)))
    size = st.one_of(st.floats(-2, 2), st.sampled_from([0.0, 1.0, 1e6, -1e6]), st.floats(-1e6, 1e6))
    gains = np.array(draw(st.lists(size, min_size=n, max_size=n)))
    return eta, alpha, p, draws, gains


@given(steps())
@example((1.0, 0.2, np.array([0.1, 0.9]), np.array([0, 0, 1]), np.array([1e6, -1e6])))
@example((1.0, 0.0, np.array([1.0]), np.array([0, 0]), np.array([1e6])))
@example((0.5, 1.0, np.full(4, 0.25), np.array([3, 3]), np.array([0, 0, 0, 1e6])))
def test_update_is_the_optimum_for_the_estimate_of_line_8(
    step: tuple[float, float, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    eta, alpha, p, draws, gains = step
    n, K = len(p), len(draws)
    estimate = np.array([np.sum(draws == i) / (K * p[i]) * gains[i] for i in range(n)])
    sampler = OSMD(eta=eta, alpha=alpha)
    q = OnePrice(sampler).probabilities(OnePrice(sampler).update(np.log(p), draws, gains[draws]))
    log_weights = np.log(p) + eta * estimate
    assert_feasible(q, alpha)
    assert (q >= alpha / n).all()
    # two giants that nearly tie are only known to the last digit of the larger
    slip = 1e-8 + 16 * EPS * np.abs(log_weights).max()
    np.testing.assert_allclose(q, by_bisection(log_weights, alpha), rtol=0, atol=slip)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 0.5, 1.0]))
def test_p_stays_sound_through_a_long_wild_game(seed: int, alpha: float) -> None:
    rng, sampler = np.random.default_rng(seed), OSMD(eta=0.5, alpha=alpha)
    state = OnePrice(sampler).init(6)
    for _ in range(60):
        draws = OnePrice(sampler).draw(state, rng, 4)
        gains = (rng.normal(size=6) * 10.0 ** rng.integers(-3, 7))[draws]
        state = OnePrice(sampler).update(state, draws, gains)
        p = OnePrice(sampler).probabilities(state)
        assert_feasible(p, alpha)
        assert (p >= alpha / 6).all()


@pytest.mark.parametrize("gain", [1e308, -1e308])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_finite_gain_never_makes_p_infinite_or_nan(gain: float, alpha: float) -> None:
    sampler = OSMD(eta=10.0, alpha=alpha)
    draws = np.array([0, 1])
    p = OnePrice(sampler).probabilities(
        OnePrice(sampler).update(OnePrice(sampler).init(4), draws, np.array([gain, -gain]))
    )
    assert_feasible(p, alpha)
    winner = 0 if gain > 0 else 1
    assert p[winner] == pytest.approx(1 - 3 * alpha / 4)


def test_a_million_providers() -> None:
    rng = np.random.default_rng(0)
    log_weights, alpha = rng.normal(scale=3, size=1_000_000), 0.2
    log_q = project_clipped_simplex(log_weights, alpha)
    assert_feasible(np.exp(log_q), alpha)
    assert_optimal(log_q, log_weights, alpha)
