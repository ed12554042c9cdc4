"""Value to money: exact sums, both modes, and the cases in which nobody earned anything. Stability over seeds."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from databazaar import BazaarError
from databazaar.valuation import Cost, ValuationResult, payouts, stability
from databazaar.valuation.comparison import student_quantile

values = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30)
modes = st.sampled_from(["positive", "shifted"])


@given(values, st.integers(0, 10**15), modes)
def test_parts_sum_to_the_budget_and_are_fair(worths: list[float], budget: int, mode: str) -> None:
    parts = payouts(worths, budget, mode)  # type: ignore[arg-type]
    assert sum(parts) == budget and min(parts) >= 0
    floor = Fraction(min(worths)) if mode == "shifted" else Fraction(0)
    weights = [max(Fraction(v) - floor, Fraction(0)) for v in worths]
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        share = budget * weight / total if total else Fraction(budget, len(worths))
        assert abs(part - share) < 1
    order = sorted(range(len(worths)), key=lambda i: weights[i])
    assert all(parts[a] <= parts[b] for a, b in pairwise(order) if weights[a] < weights[b])


def test_the_two_modes() -> None:
    assert payouts([2.0, 1.0, -1.0], 300) == [200, 100, 0]
    assert payouts([2.0, 1.0, -1.0], 300, "shifted") == [180, 120, 0]


@pytest.mark.parametrize(("worths", "mode"), [([-1.0, -2.0, 0.0], "positive"), ([4.0, 4.0, 4.0], "shifted")])
def test_where_nobody_has_a_share_all_get_an_equal_part(worths: list[float], mode: str) -> None:
    assert payouts(worths, 11, mode) == [4, 4, 3]  # type: ignore[arg-type]


def test_nonsense_is_refused() -> None:
    for bad in ([float("nan")], [1.0, float("inf")]):
        with pytest.raises(BazaarError, match="cannot be paid"):
            payouts(bad, 10)
    with pytest.raises(BazaarError, match="budget"):
        payouts([1.0], -1)
    with pytest.raises(BazaarError, match="mode"):
        payouts([1.0], 1, "all")  # type: ignore[arg-type]
    with pytest.raises(BazaarError, match="nobody"):
        payouts([], 1)


def test_a_result_ranks_pays_and_becomes_json() -> None:
    result = ValuationResult("x", ("a", "b", "c"), np.array([1.0, 3.0, 1.0]), np.full(3, np.inf), "cap", Cost(1, 2))
    assert result.ranking() == ("b", "a", "c")
    assert result.payouts(10) == {"a": 2, "b": 6, "c": 2}
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["values"] == [1.0, 3.0, 1.0] and read["cost"]["utility_evaluations"] == 2
    assert read["standard_errors"] == [None, None, None] and read["final_utility"] is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 99])
def test_student_quantile(freedom: int) -> None:
    for confidence in (0.5, 0.9, 0.95, 0.99):
        expected = stats.t.ppf((1 + confidence) / 2, freedom)
        assert student_quantile(confidence, freedom) == pytest.approx(expected, rel=1e-4)


def test_stability_intervals_cover_and_ranks_hold() -> None:
    rng = np.random.default_rng(0)
    centre = np.array([900.0, 500.0, 480.0, 100.0])
    covered, kept, promised = 0, 0, 0
    for _ in range(300):
        runs = np.rint(centre + 20 * rng.normal(size=(6, 4)))
        sure = stability(["a", "b", "c", "d"], runs[:5])
        covered += int(((sure.low <= centre) & (centre <= sure.high)).sum())
        ranks = 1 + np.argsort(np.argsort(-runs[5]))
        kept += int((ranks == sure.best_rank)[sure.survives].sum())
        promised += int(sure.survives.sum())
    assert 0.92 < covered / 1200 < 0.98
    assert promised > 500 and kept / promised > 0.95
    assert not sure.survives[1] and not sure.survives[2]
    assert json.dumps(sure.to_dict(), allow_nan=False)


def test_stability_of_equal_payouts_promises_no_rank() -> None:
    sure = stability(["a", "b", "c"], [[9, 3, 3]] * 3)
    assert sure.survives.tolist() == [True, False, False]
    assert sure.best_rank.tolist() == [1, 2, 2] and sure.worst_rank.tolist() == [1, 3, 3]
    for few in ([[1]], [[1], [1]]):
        with pytest.raises(BazaarError, match="at least three seeds"):
            stability(["a"], few)
    for confidence in (0.0, 1.0, float("nan")):
        with pytest.raises(BazaarError, match=f"confidence = {confidence} must lie between 0 and 1"):
            stability(["a"], [[1], [2], [3]], confidence)


def test_no_interval_goes_below_zero_and_it_covers_all_the_same() -> None:
    """Amounts that are mostly nothing and now and then much, as rare pay is."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        runs = rng.poisson(0.7, size=(5, 2)) * 10
        sure = stability(["a", "b"], runs)
        assert (sure.low >= 0).all() and (sure.low <= sure.mean).all() and (sure.mean <= sure.high).all()
        covered += int(((sure.low <= 7) & (sure.high >= 7)).sum())
    assert covered / 600 > 0.85
