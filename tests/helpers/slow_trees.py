"""A grower that is slow and obvious: masks of rows, one split at a time. The fast one has to give the same tree."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from databazaar.learning.trees.bins import MISSING, Binned
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
FREE = (-np.inf, np.inf)


@dataclass(eq=False)
class Leaf:
    """Some rows. When it has been split: by which feature, which bins went left, and the two halves."""

    rows: Mask
    depth: int
    bounds: tuple[float, float]
    gain: float = -np.inf
    feature: int = -1
    left: Mask = field(default_factory=lambda: np.zeros(256, dtype=np.bool_))
    halves: tuple[Leaf, Leaf] | None = None


@dataclass
class SlowTree:
    """Rows, their rounded gradients, and how to grow."""

    binned: Binned
    gradients: Numbers
    hessians: Numbers
    growth: Growth
    categorical: Mask

    def grown(self) -> Leaf:
        root = Leaf(np.ones(len(self.binned), dtype=np.bool_), 0, FREE)
        self.look(root)
        leaves = [root]
        while len(leaves) < self.growth.leaves:
            best = max(leaves, key=lambda leaf: leaf.gain)
            if best.gain <= self.growth.min_gain:
                break
            best.halves = self.halves(best)
            leaves.remove(best)
            leaves += best.halves
            for half in best.halves:
                self.look(half)
        return root

    def halves(self, leaf: Leaf) -> tuple[Leaf, Leaf]:
        goes_left = leaf.left[self.binned[:, leaf.feature]]
        left, right = leaf.rows & goes_left, leaf.rows & ~goes_left
        low = high = leaf.bounds
        sign = self.growth.monotone[leaf.feature] if self.growth.monotone else 0
        if sign:
            middle = (self.value(left, leaf.bounds) + self.value(right, leaf.bounds)) / 2
            low, high = (leaf.bounds[0], middle), (middle, leaf.bounds[1])
            low, high = (low, high) if sign > 0 else (high, low)
        return Leaf(left, leaf.depth + 1, low), Leaf(right, leaf.depth + 1, high)

    def value(self, rows: Mask, bounds: tuple[float, float], more: float = 0.0) -> float:
        weight = self.hessians[rows].sum() + (self.growth.l2 + more)
        return float(np.clip(self.gradients[rows].sum() / weight, *bounds))

    def taken(self, rows: Mask, bounds: tuple[float, float], more: float) -> float:
        g, h = self.gradients[rows].sum(), self.hessians[rows].sum() + (self.growth.l2 + more)
        if not self.growth.monotone:
            return float(g * g / h)
        value = self.value(rows, bounds, more)
        return float((2 * g - h * value) * value)

    def look(self, leaf: Leaf) -> None:
        """The best split of a leaf: every feature, missing values on either side, every place to divide."""
        if self.growth.depth and leaf.depth >= self.growth.depth:
            return
        for feature in range(self.binned.shape[1]):
            for missing_left in (False, True):
                going = np.zeros(256, dtype=np.bool_)
                going[MISSING] = missing_left
                reached = 0
                if missing_left:
                    self.weigh(leaf, feature, going.copy())
                for bin_ in self.order(leaf, feature):
                    going[bin_] = True
                    known = leaf.rows & going[self.binned[:, feature]] & (self.binned[:, feature] != MISSING)
                    group = int(known.sum()) // self.growth.category_rows
                    if not self.many(leaf, feature) or group != reached:
                        self.weigh(leaf, feature, going.copy())
                    reached = group

    def order(self, leaf: Leaf, feature: int) -> list[int]:
        bins = list(range(1, 256))
        if not self.categorical[feature]:
            return bins[: self.binned[:, feature].max() or 1]
        found = {}
        for bin_ in bins:
            rows = leaf.rows & (self.binned[:, feature] == bin_)
            if rows.any():
                found[bin_] = self.gradients[rows].sum() / (self.hessians[rows].sum() + self.growth.category_smoothing)
        return sorted(found, key=lambda bin_: found[bin_])

    def many(self, leaf: Leaf, feature: int) -> bool:
        known = set(self.binned[leaf.rows, feature].tolist()) - {MISSING}
        return bool(self.categorical[feature]) and len(known) > self.growth.few_categories

    def weigh(self, leaf: Leaf, feature: int, going: Mask) -> None:
        growth, goes_left = self.growth, going[self.binned[:, feature]]
        left, right = leaf.rows & goes_left, leaf.rows & ~goes_left
        many = self.many(leaf, feature)
        more, least = (growth.category_l2, growth.category_rows) if many else (0.0, 0)
        for side in (left, right):
            if side.sum() < max(growth.min_rows, least) or self.hessians[side].sum() < growth.min_hessian:
                return
        if growth.monotone and growth.monotone[feature]:
            step = self.value(right, leaf.bounds) - self.value(left, leaf.bounds)
            if growth.monotone[feature] * step < 0:
                return
        gain = self.taken(left, leaf.bounds, more) + self.taken(right, leaf.bounds, more)
        gain -= self.taken(leaf.rows, leaf.bounds, more)
        if gain > leaf.gain:
            leaf.gain, leaf.feature, leaf.left = gain, feature, going


def rounded(gradients: Numbers, hessians: Numbers) -> tuple[Numbers, Numbers, Grid]:
    """Gradients and hessians on the grid that holds them."""
    grid = Grid.of(float(np.abs(gradients).max()), float(hessians.max()), len(gradients))
    return *grid.round(gradients, hessians), grid


def values(tree: SlowTree, root: Leaf) -> Numbers:
    """What each row is moved by."""
    found = np.empty(len(tree.binned))
    waiting = [root]
    while waiting:
        leaf = waiting.pop()
        if leaf.halves:
            waiting += leaf.halves
        else:
            found[leaf.rows] = tree.growth.rate * tree.value(leaf.rows, leaf.bounds)
    return found
