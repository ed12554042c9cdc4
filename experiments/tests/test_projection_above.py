"""The projection onto floors of each provider's own, which `coins` needs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from databazaar.samplers.osmd import project_clipped_simplex
from databazaar_experiments.samplers.coins import project_above

weights = st.lists(
    st.one_of(
        st.floats(-5, 5),
        st.sampled_from([0.0, 1.0, -1.0, 1e6, -1e6, 1e9, -1e9, 700.0, -745.0, -800.0]),
        st.floats(-1e6, 1e6),
    ),
    min_size=1,
    max_size=12,
)
alphas = st.sampled_from([1e-12, 1e-3, 0.5, 1 - 1e-12, 1.0]) | st.floats(1e-9, 1)


def by_trying_all(log_weights: np.ndarray, floors: np.ndarray) -> np.ndarray:
    """The best q of all that put some providers at their floors and scale the others: one of them is the optimum."""
    n, best, least = len(floors), floors, np.inf
    weights = np.exp(log_weights - log_weights.max())
    for free in itertools.product([False, True], repeat=n):
        scaled = np.array(free)
        if not scaled.any():
            continue
        q = floors.copy()
        q[scaled] = weights[scaled] / weights[scaled].sum() * (1 - floors[~scaled].sum())
        cost = float((q * np.log(q / weights)).sum()) if (q > 0).all() else np.inf
        if (q >= floors * (1 - 1e-12)).all() and cost < least:
            best, least = q, cost
    return best


shares = st.lists(
    st.tuples(st.floats(-12, 12), st.floats(1e-9, 1) | st.sampled_from([1e-9, 1.0])), min_size=1, max_size=6
)


@given(shares, st.sampled_from([1e-9, 1e-3, 0.3, 0.999, 1.0]))
@example([(0.0, 1.0)], 1.0)
@example([(1.0, 1e-9), (1.0, 1.0), (-9.0, 1.0)], 1.0)
def test_projection_with_floors_of_each_ones_own_is_the_best_of_all_that_can_be(
    given: list[tuple[float, float]], alpha: float
) -> None:
    log_weights, floors = np.array([weight for weight, _ in given]), np.array([floor for _, floor in given])
    untouched = log_weights.copy(), floors.copy()
    q = np.exp(project_above(log_weights, alpha / len(floors) * floors))
    assert (log_weights == untouched[0]).all() and (floors == untouched[1]).all()
    lowest = alpha / len(floors) * floors
    assert q.sum() == pytest.approx(1, abs=1e-12) and (q >= lowest * (1 - 1e-12)).all()
    np.testing.assert_allclose(q, by_trying_all(log_weights, lowest), rtol=1e-9)


@given(weights, alphas)
def test_projection_with_equal_floors_is_that_with_one(values: list[float], alpha: float) -> None:
    log_weights = np.array(values)
    one = project_clipped_simplex(log_weights, alpha)
    each = project_above(log_weights, np.full(len(values), alpha / len(values)))
    np.testing.assert_allclose(np.exp(each), np.exp(one), rtol=1e-9, atol=1e-15)


def test_projection_with_floors_that_take_all_is_those_floors() -> None:
    floors = np.array([0.5, 1.5, 1.0])
    q = np.exp(project_above(np.array([0.0, 1e6, -1e6]), floors / 3))
    np.testing.assert_allclose(q, floors / 3, rtol=1e-12)
