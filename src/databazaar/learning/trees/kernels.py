"""The three inner loops of growing, and that of predicting, for Numba to compile where it is installed.

They are plain functions that say the same as the array operations beside them, to the bit: sums are exact, and a gain
is computed by the same operations in the same order. So whether Numba is there changes the time and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.intp]
Bytes = NDArray[np.uint8]

AT_ONCE = 4


@dataclass(frozen=True)
class Kernels:
    """The functions of this module, compiled."""

    add_up: Callable[..., Any]
    divide: Callable[..., Any]
    best_number: Callable[..., Any]
    find_leaves: Callable[..., Any]


@cache
def compiled() -> Kernels | None:
    """None where Numba is not installed. The first call of each function compiles it, or reads what was compiled."""
    if importlib.util.find_spec("numba") is None:
        return None
    njit = importlib.import_module("numba").njit

    def made(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(function, nogil=True, error_model="numpy", cache=True)  # type: ignore[no-any-return]
        except RuntimeError:  # no folder that may be written to
            return njit(function, nogil=True, error_model="numpy")  # type: ignore[no-any-return]

    return Kernels(made(add_up), made(divide), made(best_number), made(find_leaves))


def add_up(columns: Bytes, rows: Places, gradients: Numbers, hessians: Numbers, counted: int, sums: Numbers) -> None:
    """Sums of gradients, hessians and rows [3, features, bins], some features at a time: as many as a cache holds. Only
    the first `counted` rows are counted."""
    features, bins = columns.shape[0], sums.shape[2]
    near = np.zeros((AT_ONCE, bins, 3))
    for first in range(0, features - features % AT_ONCE, AT_ONCE):
        near[:] = 0.0
        for row in rows:
            gradient, hessian, one = gradients[row], hessians[row], 1.0 if row < counted else 0.0
            for place in range(AT_ONCE):
                bin_ = columns[first + place, row]
                near[place, bin_, 0] += gradient
                near[place, bin_, 1] += hessian
                near[place, bin_, 2] += one
        for place in range(AT_ONCE):
            for bin_ in range(bins):
                for kind in range(3):
                    sums[kind, first + place, bin_] = near[place, bin_, kind]
    for feature in range(features - features % AT_ONCE, features):
        sums[:, feature] = 0.0
        for row in rows:
            bin_ = columns[feature, row]
            sums[0, feature, bin_] += gradients[row]
            sums[1, feature, bin_] += hessians[row]
            sums[2, feature, bin_] += 1.0 if row < counted else 0.0


def divide(column: Bytes, rows: Places, left: Bytes, spare: Places) -> int:
    """Moves the rows that go left before those that go right, both in their order; how many go left."""
    to_left = to_right = 0
    for row in rows:
        goes = left[column[row]]
        rows[to_left] = row
        spare[to_right] = row
        to_left += goes
        to_right += 1 - goes
    rows[to_left:] = spare[:to_right]
    return to_left


def best_number(
    sums: Numbers, total: Numbers, features: Places, missing_left: bool, min_rows: int, min_hessian: float, l2: float
) -> tuple[float, int, int]:
    """The first of the best splits of numbers: gain, place among `features`, bin; `sums` [3, features, bins]."""
    bins = sums.shape[2]
    gradient, hessian, rows = total[0], total[1], total[2]
    own = gradient * gradient / (hessian + l2)
    best, best_place, best_bin = -np.inf, 0, 0
    for place in range(len(features)):
        of_gradients, of_hessians, of_rows = (
            sums[0, features[place]],
            sums[1, features[place]],
            sums[2, features[place]],
        )
        left_gradient, left_hessian, left_rows = 0.0, 0.0, 0.0
        if missing_left:
            left_gradient, left_hessian, left_rows = of_gradients[0], of_hessians[0], of_rows[0]
        for bin_ in range(0 if missing_left else 1, bins):
            if bin_:
                if of_rows[bin_] == 0 and of_gradients[bin_] == 0 and of_hessians[bin_] == 0:
                    continue  # it gains what the bin before did
                left_gradient += of_gradients[bin_]
                left_hessian += of_hessians[bin_]
                left_rows += of_rows[bin_]
            right_hessian = hessian - left_hessian
            if left_rows < min_rows or left_hessian < min_hessian:
                continue
            if left_rows > rows - min_rows or right_hessian < min_hessian:
                continue
            right_gradient = gradient - left_gradient
            gain = left_gradient * left_gradient / (l2 + left_hessian)
            gain += right_gradient * right_gradient / (l2 + right_hessian)
            gain -= own
            if gain > best:
                best, best_place, best_bin = gain, place, bin_
    return best, best_place, best_bin


def find_leaves(
    binned: Bytes, feature: NDArray[np.int32], left: NDArray[np.bool_], children: NDArray[np.int32], leaves: Places
) -> None:
    """The leaf of each row, of a tree with at least one split."""
    for row in range(len(binned)):
        node = 0
        while node >= 0:
            side = 0 if left[node, binned[row, feature[node]]] else 1
            node = children[node, side]
        leaves[row] = -node - 1
