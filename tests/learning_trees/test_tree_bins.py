"""Bins of features: from the buyer's rows alone, edges between values, one bin for what is missing or unknown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import MISSING, Bins

VALUES = st.one_of(st.floats(allow_nan=True, allow_infinity=False, width=64), st.sampled_from([0.0, 1.0, 2.0, np.nan]))


@settings(max_examples=80)
@given(arrays(np.float64, st.tuples(st.integers(1, 60), st.just(2)), elements=VALUES), st.integers(2, 20))
def test_bins_keep_the_order_of_numbers(x: np.ndarray, most: int) -> None:
    bins = Bins.of(x, most=most)
    binned = bins.apply(x)
    for feature in range(2):
        column, place = x[:, feature], binned[:, feature]
        known = ~np.isnan(column)
        assert ((place == MISSING) == ~known).all()
        assert len(bins.edges[feature]) < most
        order = np.argsort(column[known], kind="stable")
        assert (np.diff(place[known][order].astype(int)) >= 0).all()
        edges = np.append(bins.edges[feature], np.inf)
        assert (column[known] <= edges[place[known] - 1]).all()
        if len(set(column[known].tolist())) <= most:
            assert len(set(place[known].tolist())) == len(set(column[known].tolist()))


def test_bins_hold_about_as_many_rows_each() -> None:
    x = np.random.default_rng(0).exponential(size=(10_000, 1))
    counts = np.bincount(Bins.of(x, most=50).apply(x)[:, 0])[1:]
    assert len(counts) == 50 and counts.min() > 150 and counts.max() < 250


def test_a_frequent_value_has_a_bin_of_its_own() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(5_000) < 0.6, 0.5, rng.random(5_000))[:, None]
    bins = Bins.of(x, most=64)
    place = bins.apply([[0.5]])[0, 0]
    assert {*x[bins.apply(x)[:, 0] == place, 0].tolist()} == {0.5}
    assert len(bins.edges[0]) > 55


def test_only_the_buyers_rows_count() -> None:
    """Providers' values lie in the buyer's bins: beyond them in the outer ones, unknown categories with the missing."""
    bins = Bins.of([[0.0, 3], [1.0, 5], [2.0, 5]], categorical=[1])
    assert bins.apply([[-9.0, 4], [9.0, 3], [np.inf, 5.0], [-np.inf, -1.0], [np.nan, np.nan]]).tolist() == [
        [1, 0],
        [3, 1],
        [3, 2],
        [1, 0],
        [0, 0],
    ]


def test_the_most_frequent_categories_are_kept() -> None:
    codes = np.repeat(np.arange(300), np.where(np.arange(300) < 100, 1, 2))[:, None].astype(float)
    bins = Bins.of(codes, categorical=[0])
    assert bins.codes[0] is not None
    assert bins.codes[0].tolist() == [*range(55), *range(100, 300)]
    assert bins.width == 256


def test_a_feature_without_values_has_one_bin() -> None:
    bins = Bins.of([[np.nan, np.nan]], categorical=[1])
    assert bins.apply([[1.0, 2.0], [np.nan, np.nan], [0.0, -1.0]]).tolist() == [[1, 0], [0, 0], [1, 0]]


@settings(max_examples=40)
@given(arrays(np.float64, st.tuples(st.integers(1, 30), st.just(3)), elements=st.sampled_from([0.0, 1, 2, 3, np.nan])))
def test_bins_are_arrays_and_back(x: np.ndarray) -> None:
    bins = Bins.of(x, categorical=[1])
    back = Bins.from_arrays(bins.arrays())
    assert (back.apply(x) == bins.apply(x)).all()
    assert back.width == bins.width and back.categorical.tolist() == [False, True, False]
    assert all((back.arrays()[name] == array).all() for name, array in bins.arrays().items())


@pytest.mark.parametrize(
    ("x", "categorical", "most", "words"),
    [
        ([1.0, 2.0], (), 255, r"give \[rows, features\]"),
        (np.empty((0, 2)), (), 255, "one row"),
        ([[1.0]], (1,), 255, "feature 1 is none of 1"),
        ([[1.5]], (0,), 255, "give codes"),
        ([[-1.0]], (0,), 255, "give codes"),
        ([[1.0]], (), 256, "2 to 255"),
    ],
)
def test_what_cannot_be_binned_is_said(x: object, categorical: tuple[int, ...], most: int, words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        Bins.of(x, categorical, most)  # type: ignore[arg-type]


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(BazaarError, match="3 features"):
        Bins.of([[1.0, 2.0]]).apply([[1.0, 2.0, 3.0]])
