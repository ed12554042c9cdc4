"""The best split of each of several nodes, from their sums alone.

A split's gain is what it takes from the objective's quadratic: Σ over children of G² / (H + l2), less that of the node.
Numbers are divided below or above an edge; categories are ordered by their G / (H + smoothing) in this node and then
divided like numbers; missing values go to whichever side gains more. Of equal gains the first is taken: the lowest
feature, the lowest bin, missing values to the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import MISSING

Numbers = NDArray[np.float64]
G, H, N = range(3)


@dataclass(frozen=True)
class Growth:
    """How trees grow. `leaves`: the most that a tree has, the best split first; `depth`: the longest way to a leaf, 0 for
    any. `monotone`: for each feature 1 (the answer rises with it), −1 (falls) or 0; empty for none.
    """

    rate: float = 0.1
    leaves: int = 31
    depth: int = 0
    min_rows: int = 20
    min_hessian: float = 1e-3
    l2: float = 1.0
    min_gain: float = 0.0
    category_l2: float = 10.0
    category_smoothing: float = 10.0
    monotone: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        least = {"leaves": 2, "depth": 0, "min_rows": 1, "l2": 0, "min_gain": 0, "category_l2": 0, "category_smoothing": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise BazaarError(f"{name} is {getattr(self, name)}: use {bound} or more")
        if self.rate <= 0 or self.min_hessian <= 0:
            raise BazaarError("rate and min_hessian must be above 0")
        if not set(self.monotone) <= {-1, 0, 1}:
            raise BazaarError("monotone has 1, -1 or 0 for each feature")


@dataclass(frozen=True)
class Candidate:
    """The best split of a node: which bins go left, and the sums of both children."""

    gain: float
    feature: int
    bin: int
    """The last bin that goes left; −1 where the feature is a category."""
    left: NDArray[np.bool_]
    """One of each of the 256 bins."""
    sums: tuple[Numbers, Numbers]
    """Gradient, hessian and rows of the children."""


@dataclass(frozen=True)
class _Direction:
    """Ways to divide some features in order: sums of what goes left [nodes, 3, features, bins]."""

    below: Numbers
    features: NDArray[np.intp]
    missing_left: bool
    order: NDArray[np.intp] | None = None
    """The bins of categories in the order in which they go left [nodes, features, bins]."""


class Search:
    """Finds splits; knows what features are, and which of them ever lack a value in these rows."""

    def __init__(self, growth: Growth, categorical: NDArray[np.bool_], root: Numbers) -> None:
        self._growth = growth
        self._width = root.shape[-1]
        lacking = root[N, :, MISSING] != 0
        self._numbers = np.flatnonzero(~categorical)
        self._lacking = np.flatnonzero(~categorical & lacking)
        self._categories = np.flatnonzero(categorical)
        signs = np.zeros(len(categorical)) if not growth.monotone else np.array(growth.monotone, dtype=np.float64)
        if len(signs) != len(categorical):
            raise BazaarError(f"monotone has {len(signs)} numbers for {len(categorical)} features: give one of each")
        if signs[categorical].any():
            raise BazaarError("a category cannot be monotone: its codes have no order")
        self._signs = signs if signs.any() else None

    def best(self, sums: Numbers, totals: Numbers, bounds: Sequence[tuple[float, float]]) -> list[Candidate | None]:
        """Of nodes with these sums [nodes, 3, features, bins], totals [nodes, 3] and bounds of their value."""
        limits = np.array(bounds)
        best: list[Candidate | None] = [None] * len(sums)
        for direction in self._directions(sums):
            gains = self._gains(direction, totals, limits).reshape(len(sums), -1)
            places = gains.argmax(1) if gains.shape[1] else np.zeros(len(sums), dtype=np.intp)
            for node, place in enumerate(places):
                gain = float(gains[node, place]) if gains.shape[1] else -np.inf
                found = best[node]
                if gain > self._growth.min_gain and (found is None or _before(gain, direction, place, found, self._width)):
                    best[node] = self._candidate(direction, node, int(place), gain, totals[node])
        return best

    def value(self, total: Numbers, bounds: tuple[float, float]) -> float:
        """What a node's rows are moved by, before the rate."""
        return float(np.clip(total[G] / (total[H] + self._growth.l2), *bounds))

    def child_bounds(
        self, split: Candidate, bounds: tuple[float, float]
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Of both children: below a monotone split neither side may pass the middle of the two values."""
        sign = 0.0 if self._signs is None else self._signs[split.feature]
        if not sign:
            return bounds, bounds
        middle = sum(self.value(total, bounds) for total in split.sums) / 2
        low, high = (bounds[0], middle), (middle, bounds[1])
        return (low, high) if sign > 0 else (high, low)

    def _directions(self, sums: Numbers) -> list[_Direction]:
        found = []
        if len(self._numbers):
            some = sums if len(self._numbers) == sums.shape[2] else sums[:, :, self._numbers]
            below = some.cumsum(-1)
            if len(self._lacking):
                with_missing = sums[:, :, self._lacking].cumsum(-1)
                below -= some[..., MISSING, None]
                found.append(_Direction(with_missing, self._lacking, True))
            found.insert(0, _Direction(below, self._numbers, False))
        if len(self._categories):
            found += self._of_categories(sums[:, :, self._categories])
        return found

    def _of_categories(self, sums: Numbers) -> list[_Direction]:
        """Categories that no row of a node is of come last, and go right."""
        ratio = sums[:, G] / (sums[:, H] + max(self._growth.category_smoothing, self._growth.min_hessian))
        ratio[sums[:, N] == 0] = np.inf
        ratio[..., MISSING] = -np.inf
        order = np.argsort(ratio, axis=-1, kind="stable")
        below = np.take_along_axis(sums, order[:, None], axis=-1).cumsum(-1)
        without = below - sums[..., MISSING, None]
        return [_Direction(each, self._categories, left, order) for each, left in ((without, False), (below, True))]

    def _gains(self, direction: _Direction, totals: Numbers, limits: Numbers) -> Numbers:
        """Gains [nodes, features, bins]; −∞ where a side has too few rows or a constraint does not hold."""
        growth = self._growth
        l2 = growth.l2 + (growth.category_l2 if direction.order is not None else 0.0)
        left, all_of = direction.below, totals[:, :, None, None]
        right = all_of - left
        enough = left[:, N] >= growth.min_rows
        enough &= right[:, N] >= growth.min_rows
        enough &= left[:, H] >= growth.min_hessian
        enough &= right[:, H] >= growth.min_hessian
        if self._signs is None:
            with np.errstate(divide="ignore", invalid="ignore"):
                gains = _square_over(left, l2)
                gains += _square_over(right, l2)
                gains -= (totals[:, G] ** 2 / (totals[:, H] + l2))[:, None, None]
        else:
            gains = self._bounded_gains(direction, left, right, totals, limits, l2, enough)
        gains[~enough] = -np.inf
        return gains

    def _bounded_gains(
        self,
        direction: _Direction,
        left: Numbers,
        right: Numbers,
        totals: Numbers,
        limits: Numbers,
        l2: float,
        enough: NDArray[np.bool_],
    ) -> Numbers:
        assert self._signs is not None
        low, high = limits[:, 0, None, None], limits[:, 1, None, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            values = [np.clip(side[:, G] / (side[:, H] + l2), low, high) for side in (left, right)]
            own = np.clip(totals[:, G] / (totals[:, H] + l2), *limits.T)
            gains = _taken(left, values[0], l2) + _taken(right, values[1], l2)
            gains -= _taken(totals, own, l2)[:, None, None]
            enough &= self._signs[direction.features][:, None] * (values[1] - values[0]) >= 0
        return gains

    def _candidate(self, direction: _Direction, node: int, place: int, gain: float, total: Numbers) -> Candidate:
        at, bin_ = divmod(place, self._width)
        below = direction.below[node, :, at, bin_].copy()
        left = np.zeros(256, dtype=np.bool_)
        feature = int(direction.features[at])
        if direction.order is None:
            left[1 : bin_ + 1] = True
            left[MISSING] = direction.missing_left
            return Candidate(gain, feature, bin_, left, (below, total - below))
        left[direction.order[node, at, 1 : bin_ + 1]] = True
        if not direction.missing_left:
            return Candidate(gain, feature, -1, left, (below, total - below))
        left[: self._width] = ~left[: self._width]  # what is missing or unknown goes right, as LightGBM has it
        left[MISSING] = False
        return Candidate(gain, feature, -1, left, (total - below, below))


def _square_over(sums: Numbers, l2: float) -> Numbers:
    """G² / (H + l2)."""
    found = sums[:, G] * sums[:, G]
    found /= sums[:, H] + l2
    return found


def _taken(sums: Numbers, value: Numbers, l2: float) -> Numbers:
    """What a value takes from the quadratic: 2 G v − (H + l2) v²."""
    return (2 * sums[:, G] - (sums[:, H] + l2) * value) * value


def _before(gain: float, direction: _Direction, place: np.intp, found: Candidate, width: int) -> bool:
    """Whether a split comes before the one found so far: by gain, then by feature."""
    return gain > found.gain or (gain == found.gain and int(direction.features[place // width]) < found.feature)
