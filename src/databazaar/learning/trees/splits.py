"""The best split of each of several nodes, from their sums alone.

A split's gain is what it takes from the objective's quadratic: Σ over children of G² / (H + l2), less that of the node.
Numbers are divided below or above an edge; categories are ordered by their G / (H + smoothing) in this node and then
divided like numbers; missing values go to whichever side gains more. Of equal gains the first is taken: the lowest
feature, the lowest bin, missing values to the right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.learning.trees import kernels
from databazaar.learning.trees.bins import MISSING
from databazaar.learning.trees.growth import Growth

Numbers = NDArray[np.float64]
G, H, N = range(3)
CACHED = 2**15
"""Numbers of a kind that are worked on at once: they stay in a core's cache."""


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
    many: NDArray[np.bool_] | None = None
    """Where a node has more than a few categories [nodes, features]."""
    same: NDArray[np.bool_] | None = None
    """There, the places with no more rows than belong to the group before [nodes, features, bins]."""


class Search:
    """Finds splits; knows what features are, and which of them ever lack a value in these rows."""

    def __init__(self, growth: Growth, categorical: NDArray[np.bool_], root: Numbers) -> None:
        self._growth = growth
        self._width = root.shape[-1]
        lacking = (root[H, :, MISSING] != 0) | (root[N, :, MISSING] != 0)
        self._numbers = np.flatnonzero(~categorical)
        self._lacking = np.flatnonzero(~categorical & lacking)
        self._categories = np.flatnonzero(categorical)
        self._at_once = max(CACHED // (root[0].size or 1), 1)
        self._signs = growth.signs(categorical)

    def best(
        self, sums: Sequence[Numbers], totals: Numbers, bounds: Sequence[tuple[float, float]]
    ) -> list[Candidate | None]:
        """Of nodes with these sums, each [3, features, bins], totals [nodes, 3] and bounds of their value."""
        found: list[Candidate | None] = []
        for begin in range(0, len(sums), self._at_once):
            some = slice(begin, begin + self._at_once)
            found += self._best(sums[some], totals[some], np.array(bounds[some]))
        return found

    def _best(self, sums: Sequence[Numbers], totals: Numbers, limits: Numbers) -> list[Candidate | None]:
        loops = kernels.compiled() if self._signs is None else None
        best = [self._compiled(loops, *each) if loops else None for each in zip(sums, totals, strict=True)]
        directions = [self._of_numbers(sums)] if loops is None and len(self._numbers) else []
        directions += [self._of_categories(sums)] if len(self._categories) else []
        for direction in chain.from_iterable(directions):
            gains = self._gains(direction, totals, limits).reshape(len(sums), -1)
            for node, place in enumerate(gains.argmax(1).tolist()):
                at, bin_ = divmod(place, self._width)
                if self._better(float(gains[node, place]), int(direction.features[at]), best[node]):
                    best[node] = self._candidate(direction, node, at, bin_, float(gains[node, place]), totals[node])
        return best

    def _compiled(self, loops: kernels.Kernels, sums: Numbers, total: Numbers) -> Candidate | None:
        """The best split of a number."""
        growth, best = self._growth, None
        for features, missing_left in ((self._numbers, False), (self._lacking, True)):
            if not len(features):
                continue
            gain, at, bin_ = loops.best_number(
                sums, total, features, missing_left, growth.min_rows, growth.min_hessian, growth.l2
            )
            if self._better(gain, int(features[at]), best):
                below = sums[:, features[at], 0 if missing_left else 1 : bin_ + 1].sum(-1)
                best = _of_number(gain, int(features[at]), bin_, missing_left, below, total)
        return best

    def _better(self, gain: float, feature: int, found: Candidate | None) -> bool:
        """Whether a split comes before the one found so far: by gain, then by feature."""
        if gain <= self._growth.min_gain or found is None:
            return gain > self._growth.min_gain
        return gain > found.gain or (gain == found.gain and feature < found.feature)

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

    def _of_numbers(self, sums: Sequence[Numbers]) -> Iterator[_Direction]:
        below = np.empty((len(sums), 3, len(self._numbers), self._width))
        for place, each in enumerate(sums):
            some = each if len(self._numbers) == each.shape[1] else each[:, self._numbers]
            torch.cumsum(torch.from_numpy(some), -1, out=torch.from_numpy(below[place]))
        with_missing = below[:, :, np.searchsorted(self._numbers, self._lacking)] if len(self._lacking) else None
        below -= below[..., MISSING, None].copy()
        yield _Direction(below, self._numbers, False)
        if with_missing is not None:
            yield _Direction(with_missing, self._lacking, True)

    def _of_categories(self, of_all: Sequence[Numbers]) -> Iterator[_Direction]:
        """Categories that no row of a node is of come last, and go right."""
        sums = np.stack([each[:, self._categories] for each in of_all])
        ratio = sums[:, G] / (sums[:, H] + max(self._growth.category_smoothing, self._growth.min_hessian))
        there = (sums[:, H] != 0) | (sums[:, N] != 0)
        ratio[~there] = np.inf
        ratio[..., MISSING] = -np.inf
        order = np.argsort(ratio, axis=-1, kind="stable")
        below = np.take_along_axis(sums, order[:, None], axis=-1).cumsum(-1)
        without = below - sums[..., MISSING, None]
        groups = without[:, N] // self._growth.category_rows
        many = there[..., 1:].sum(-1) > self._growth.few_categories
        same = many[..., None] & (np.diff(groups, axis=-1, prepend=-1) == 0)
        yield _Direction(without, self._categories, False, order, many, same)
        if there[..., MISSING].any():
            yield _Direction(below, self._categories, True, order, many, same)

    def _gains(self, direction: _Direction, totals: Numbers, limits: Numbers) -> Numbers:
        """Gains [nodes, features, bins]; −∞ where a side has too few rows or a constraint does not hold."""
        growth, left = self._growth, direction.below
        l2: float | Numbers = growth.l2
        least: int | Numbers = growth.min_rows
        if direction.many is not None:
            l2 = growth.l2 + np.where(direction.many, growth.category_l2, 0.0)[..., None]
            least = np.where(direction.many, max(growth.category_rows, growth.min_rows), growth.min_rows)[..., None]
        of_node = totals[:, :, None, None]
        right = of_node[:, : H + 1] - left[:, : H + 1]
        refused = left[:, N] < least
        refused |= left[:, N] > of_node[:, N] - least
        refused |= left[:, H] < growth.min_hessian
        refused |= right[:, H] < growth.min_hessian
        if direction.same is not None:
            refused |= direction.same
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._signs is None:
                gains = _square_over(left[:, G], l2 + left[:, H])
                gains += _square_over(right[:, G], l2 + right[:, H])
                gains -= _square_over(of_node[:, G], l2 + of_node[:, H])
            else:
                within = limits.T[..., None, None]
                own, below, above = (
                    np.clip(side[:, G] / (side[:, H] + l2), *within) for side in (of_node, left, right)
                )
                refused |= self._signs[direction.features][:, None] * (above - below) < 0
                gains = _taken(left, below, l2) + _taken(right, above, l2)
                gains -= _taken(of_node, own, l2)
        torch.from_numpy(gains).masked_fill_(torch.from_numpy(refused), -np.inf)
        return gains

    def _candidate(
        self, direction: _Direction, node: int, at: int, bin_: int, gain: float, total: Numbers
    ) -> Candidate:
        feature, below = int(direction.features[at]), direction.below[node, :, at, bin_].copy()
        if direction.order is None:
            return _of_number(gain, feature, bin_, direction.missing_left, below, total)
        left = np.zeros(256, dtype=np.bool_)
        left[direction.order[node, at, 1 : bin_ + 1]] = True
        if not direction.missing_left:
            return Candidate(gain, feature, -1, left, (below, total - below))
        left[: self._width] = ~left[: self._width]  # what is missing or unknown goes right, as LightGBM has it
        left[MISSING] = False
        return Candidate(gain, feature, -1, left, (total - below, below))


def _of_number(gain: float, feature: int, bin_: int, missing_left: bool, below: Numbers, total: Numbers) -> Candidate:
    left = np.zeros(256, dtype=np.bool_)
    left[1 : bin_ + 1] = True
    left[MISSING] = missing_left
    return Candidate(gain, feature, bin_, left, (below, total - below))


def _square_over(gradient: Numbers, weight: Numbers) -> Numbers:
    """G² / (H + l2), in the memory of H + l2."""
    return np.divide(gradient * gradient, weight, out=weight)


def _taken(sums: Numbers, value: Numbers, l2: float | Numbers) -> Numbers:
    """What a value takes from the quadratic: 2 G v − (H + l2) v²."""
    found: Numbers = (2 * sums[:, G] - (sums[:, H] + l2) * value) * value
    return found
