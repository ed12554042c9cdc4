"""The state of OSMD where providers are very many: a step touches those drawn, and not the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from databazaar.samplers.protocol import Draws, Vector
from databazaar.samplers.sum_tree import Change, Found, SumTree, firsts

STEEPEST = 300.0
"""How far a log-weight rises at most: whoever rises by that much leaves everybody else on the floor in any case."""
LEAST_LEFT = 0.01
"""What is left without those barred is a difference: of less than this, too many digits are lost."""
SLIGHT = 1e-12
"""More than rounding does to a sum."""
_EDGE = 2.0**300
"""Beyond this factor, numbers are multiplied by a power of two, so that none ever overflows."""


class Chances:
    r"""p of n providers under OSMD's step: a value, of which the latest is at hand and earlier ones can be had again.

    p_i = max(s z_i, α/n) with one scale s for all. A mirror step changes z of those drawn, and then s and the floor:
    the projection of Algorithm 2 (samplers/simplex.py) is the s with

    .. math:: \sum_i \max(s z_i, \alpha/n) = 1,

    and whoever is below the floor is lifted to it for good, z_i ← max(z_i, α/(n s)): one level for all, which a
    `SumTree` raises at once. With the set C of those known to be on the floor, s = (1 − |C| α/n) / Σ_{i∉C} z_i. Lifting
    those below α/(n s) makes s smaller and C larger, so that nobody is lifted who should not be; the first s that lifts
    nobody more is the solution.

    All values that came from one `Chances` share one tree, which stands at the one that was used last. The others know
    what to undo to come back to it.
    """

    def __init__(self, n: int, alpha: float) -> None:
        self.n, self.floor = n, alpha / n
        self._scale = 1.0
        self._tree = SumTree(n, 1.0 / n)
        self._undo: tuple[Chances, list[Change]] | None = None
        self._looked_at: tuple[Draws, Vector] | None = None
        self._way: tuple[Draws, Draws, Found] | None = None

    def __len__(self) -> int:
        return self.n

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Vector:
        """log p of everybody: the state that OSMD has where providers are few."""
        return np.log(self.dense()).astype(dtype or np.float64)

    def dense(self) -> Vector:
        """p of everybody."""
        return np.maximum(self._here().dense() * self._scale, self.floor)

    def of(self, draws: Draws) -> Vector:
        """p of those drawn."""
        return np.maximum(self._of(draws) * self._scale, self.floor)

    def _of(self, draws: Draws) -> Vector:
        """z of those drawn. A round asks three times for the same."""
        if self._looked_at is None or self._looked_at[0] is not draws:
            self._looked_at = draws, self._here().get(draws)
        return self._looked_at[1]

    def draw(self, uniform: Vector) -> Draws:
        """Inverts the cumulated p, in the order of the providers."""
        tree = self._here()
        return self._found(tree, uniform * tree.total)

    def _found(self, tree: SumTree, targets: Vector) -> Draws:
        """Whom these points of the cumulated z belong to. A step from there takes the same way."""
        order = targets.argsort(kind="stable")
        found = tree.find(targets.take(order))
        draws, values = np.empty_like(found.places), np.empty_like(found.values)
        draws[order], values[order] = found.places, found.values
        self._looked_at, self._way = (draws, values), (draws, order, found)
        return draws

    def draw_without(self, uniform: Vector, barred: Draws) -> Draws | None:
        """The same from p given that nobody is drawn who is `barred`; these are some, in rising order.

        With z of those barred taken out, the cumulated z of the others has no gaps. A point of it lies in the whole
        behind the gaps that begin at or before it. None where rounding led into a gap, or next to nothing is left: p of
        everybody then tells more.
        """
        if self.left_without(barred) is None:
            return None
        tree = self._here()
        gaps = tree.get(barred)
        ends = np.concatenate([[0.0], gaps.cumsum()])
        begins = tree.before(barred) - ends[:-1]
        targets = uniform * (tree.total - ends[-1])
        places = self._found(tree, targets + ends[begins.searchsorted(targets, side="right")])
        return None if np.isin(places, barred).any() else places

    def left_without(self, barred: Draws) -> float | None:
        """The sum of p of all others, which is 1 without those barred; None where it is too little to be told so."""
        tree = self._here()
        left = tree.total * self._scale - float(np.maximum(tree.get(barred) * self._scale, self.floor).sum())
        return left if left > LEAST_LEFT else None

    def moved(self, draws: Draws, shifts: Vector) -> Chances:
        """After a step by these shifts of log p, one for every draw, and the projection."""
        tree = self._here()
        order, (places, values, way) = self._way_to(draws, tree)
        by = shifts.take(order)
        again = places[1:] == places[:-1]
        if np.logical_or.reduce(again):  # somebody is drawn twice, and takes both shifts, in the order of the draws
            some = firsts(again)
            places, values, way = places.take(some), values.take(some), [step.only(some) for step in way]
            by = np.asarray(np.bincount(places.searchsorted(draws), weights=shifts), dtype=np.float64)
        if (steepest := max(by.tolist())) > STEEPEST:
            by -= steepest - STEEPEST
        others, slight = tree.total - sum(values.tolist()), tree.total * SLIGHT
        lifted = _lifted(values * np.exp(by), others - slight, self.floor, tree.least)
        tree.set(places, lifted, way)
        after = self._next(_projected(tree, self.floor, others + sum(lifted.tolist()) + slight))
        if not 1 / _EDGE < after._scale < _EDGE:
            _, exponent = math.frexp(after._scale)
            tree.multiply(exponent)
            after._scale = math.ldexp(after._scale, -exponent)
        self._undo = after, tree.changes()
        return after

    def _way_to(self, draws: Draws, tree: SumTree) -> tuple[Draws, Found]:
        """Draws in rising order, and the way to them: the one on which they were found, or another. A step drops it: it
        is large, and whoever looks at a run keeps the states of all its rounds."""
        known, self._way = self._way, None
        if known is not None and known[0] is draws:
            return known[1:]
        order = draws.argsort(kind="stable")
        places = draws.take(order)
        return order, Found(places, self._of(draws).take(order), tree.way(places))

    def _next(self, scale: float) -> Chances:
        after = Chances.__new__(Chances)
        after.n, after.floor, after._scale, after._tree = self.n, self.floor, scale, self._tree
        after._undo = after._looked_at = after._way = None
        return after

    def _here(self) -> SumTree:
        """The tree, brought back to where it stood for this value."""
        way, at = list[Chances](), self
        while at._undo is not None:
            way.append(at)
            at = at._undo[0]
        for earlier in reversed(way):
            assert earlier._undo is not None
            later, changes = earlier._undo
            later._undo, earlier._undo = (earlier, self._tree.undo(changes)), None
        return self._tree


def _lifted(moved: Vector, others: float, floor: float, least: float) -> Vector:
    """z of those drawn after their move, lifted to where the projection lifts them in any case: the tree need not do
    it then. The `others` sum to so much, and none of them is below `least`.

    If nobody else is lifted, those in E are, to α/(n s) with 1/s = Σ z = (others + Σ_{i∉E} z_i) / (1 − |E| α/n). Should
    that be above `least`, others are lifted as well, to no less: these go to `least` then, where those others are.
    """
    each = sorted(moved.tolist())
    total, on_floor = others + sum(each), 0
    for z in each:
        if z > floor * total / (1 - on_floor * floor):
            break
        total, on_floor = total - z, on_floor + 1
    if not on_floor:
        return moved
    return np.maximum(moved, min(floor * total / (1 - on_floor * floor), least))


def _projected(tree: SumTree, floor: float, at_most: float) -> float:
    """s, once everybody below the floor is on it. All sum to no more than `at_most`, and hardly less: where the lowest
    is above the floor by that, nobody need look further."""
    above = tree.least > floor * at_most
    while not above:
        low, count, second = tree.lowest
        level = floor * tree.above_lowest / (1 - floor * count)
        above = level <= low
        if not above:
            tree.raise_to(level)
            if level < second:
                return floor / level
    return 1 / tree.total
