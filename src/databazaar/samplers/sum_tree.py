"""Positive numbers whose sum is known; a few can be set, and all be raised to a level, without touching the rest.

A tree: numbers in rows of `LEAVES`, a node for each row, nodes in rows of `NODES`, and so on until one row, which may
be longer, has them all. Of the numbers below it every node knows the lowest, how many are that low, the second lowest,
and the sum of those that are not the lowest. Raising everything to a level below the second lowest changes one number
at the root. A higher level goes down only where two different numbers become equal, and a number that was set apart
becomes equal to others once. So k numbers are set and a level is raised in O(k log n), in the mean over steps.

What a node has as its lowest holds for everything below it, and is handed down when somebody passes, and so is a power
of two by which all were multiplied. Sums are added up anew on every way up, and not by differences: no error grows with
the steps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Places = NDArray[np.int64]
LEAF_BITS, NODE_BITS = 7, 6
LEAVES, NODES, TOP = 2**LEAF_BITS, 2**NODE_BITS, 2**11
"""A step looks at some rows of each level, and at one at the top, which may therefore have more: up to `TOP` nodes."""
_NOBODY = float(np.finfo(np.float64).max)
"""The lowest of no numbers: above all others, and nothing once it is multiplied by how many they are."""
_UNKNOWN = -1.0
"""Where nobody has looked yet for the second lowest, which is positive."""
_LOW, _SECOND, _REST, _COUNT = range(4)
_sum, _cumulated, _least, _some = np.add.reduce, np.add.accumulate, np.minimum.reduce, np.logical_or.reduce
"""The arrays' own methods come to the same, by a way that takes longer than a row."""
_ROOT = np.zeros(1, dtype=np.int64)


class Change(NamedTuple):
    """Rows of an array as they were before they were written."""

    array: NDArray[Any]
    rows: Places
    before: NDArray[Any]


class Step(NamedTuple):
    """A level of the way from the top down to some places: through which row it leads to each, and to which child in
    it; the rows, and the lowest of each child as it is under the nodes above."""

    rows: Places
    child: Places
    nodes: Vector
    lows: Vector

    def only(self, some: Places) -> Step:
        rows, child, nodes, lows = self
        return Step(rows.take(some), child.take(some), nodes.take(some, axis=1), lows.take(some, axis=0))


class Found(NamedTuple):
    """Places in rising order, the numbers there, and the way to them, from the top down, until something is set."""

    places: Places
    values: Vector
    way: list[Step]


class SumTree:
    """n numbers, all `value` in the beginning.

    >>> tree = SumTree(1000, 1.0)
    >>> tree.set(np.array([3, 700]), np.array([5.0, 0.5]))
    >>> tree.raise_to(2.0)
    >>> tree.total, tree.lowest, tree.get(np.array([0, 3, 700])).tolist()
    (2003.0, (2.0, 999, 5.0), [2.0, 5.0, 2.0])
    """

    def __init__(self, n: int, value: float) -> None:
        self.n = n
        self._changes: list[Change] = []
        self._multiplied = False  # most trees never are, and have no powers to look at
        leaves = np.full((1, -(-n // LEAVES), LEAVES), value)
        leaves.ravel()[n:] = _NOBODY
        self._levels = [leaves]  # (what is known, rows, how many): of leaves the number alone, of nodes all four
        self._powers = [np.zeros(leaves.shape[1], dtype=np.int64)]
        while (nodes := self._levels[-1].shape[1]) > 1:
            level = np.zeros((4, 1, nodes) if nodes <= TOP else (4, -(-nodes // NODES), NODES))
            level[:_REST] = _NOBODY
            self._levels.append(level)
            self._powers.append(np.zeros(level.shape[1], dtype=np.int64))
            self._write(len(self._levels) - 1, np.arange(nodes))
        self._root = _sums(self._levels[-1])
        self._power = _ROOT.copy()
        self._by_row = [level.swapaxes(0, 1) for level in self._levels]
        self._seen_at_top: tuple[Vector, Vector, Vector] | None = None

    @property
    def lowest(self) -> tuple[float, int, float]:
        """The lowest number, how many are that low, and the second lowest."""
        low, second, _, count = self._all_of_root()[:, 0].tolist()
        return low, int(count), second

    @property
    def above_lowest(self) -> float:
        """The sum of those that are not the lowest."""
        return float(self._all_of_root()[_REST, 0])

    @property
    def least(self) -> float:
        """The lowest number."""
        return float(self._root[_LOW, 0])

    @property
    def total(self) -> float:
        return float(self._at_top()[2][-1])

    def _all_of_root(self) -> Vector:
        """What is known of all numbers. After they are set it is the lowest, until somebody asks for more."""
        if self._root[_SECOND, 0] == _UNKNOWN:
            self._root[:] = _sums(self._rows(len(self._levels) - 1, _ROOT))
        return self._root

    def _at_top(self) -> tuple[Vector, Vector, Vector]:
        """Of the highest level, which is one row: the lowest of each node, its sum, and the sum of all up to it."""
        if self._seen_at_top is None:
            top = len(self._levels) - 1
            nodes = self._rows(top, _ROOT) if self._multiplied else self._levels[top]
            lows = np.maximum(nodes[_LOW, 0], self._root[_LOW])
            sums = lows * nodes[_COUNT, 0] + nodes[_REST, 0] if top else self._numbers(lows, _ROOT)
            self._seen_at_top = lows, sums, sums.cumsum()
        return self._seen_at_top

    def get(self, places: Places) -> Vector:
        """The numbers at these places."""
        values = np.full(len(places), self._root[_LOW])
        for level, nodes in enumerate(self._levels):
            rows, child = self._row_and_child(_nodes_above(places, level), level)
            lows = nodes[_LOW, rows, child]
            values = np.maximum(values, np.ldexp(lows, self._power - self._powers[level][rows]))
        return values

    def dense(self) -> Vector:
        """All numbers."""
        low: Vector = self._root[_LOW]
        for level in reversed(range(len(self._levels))):
            rows = self._levels[level].shape[1]
            low = np.maximum(self._rows(level, np.arange(rows))[_LOW], low[:rows, None]).ravel()
        return low[: self.n]

    def before(self, places: Places) -> Vector:
        """Of every place, in rising order, the sum of the numbers before it."""
        each, low = np.arange(len(places)), np.full(len(places), self._root[_LOW])
        sum_before = np.zeros(len(places))
        for level in reversed(range(len(self._levels))):
            own, child = self._row_and_child(_nodes_above(places, level), level)
            nodes = self._rows(level, own)
            lows = np.maximum(nodes[_LOW], low[:, None])
            sums = lows * nodes[_COUNT] + nodes[_REST] if level else self._numbers(lows, own)
            sum_before += np.where(child > 0, sums.cumsum(axis=1)[each, child - 1], 0.0)
            low = lows[each, child]
        return sum_before

    def find(self, targets: Vector) -> Found:
        """Of every target, in rising order, the first place at which the numbers up to it sum to more."""
        (low, sums, ladder), top, way = self._at_top(), len(self._levels) - 1, list[Step]()
        rows = np.minimum(ladder.searchsorted(targets, side="right"), self._nodes(top) - 1)
        low, rest = low.take(rows), targets - (ladder.take(rows) - sums.take(rows))
        for level in range(top - 1, -1, -1):
            nodes = self._rows(level, rows)
            width = nodes.shape[2]
            lows = np.maximum(nodes[_LOW], low[:, None])
            sums = lows * nodes[_COUNT] + nodes[_REST] if level else self._numbers(lows, rows)
            ladder = _cumulated(sums, axis=1)
            before = ladder <= rest[:, None]
            before[:, -1] = False  # where rounding leads beyond all that there is
            child = before.argmin(axis=1)  # the first that is not
            if rows[-1] == self._levels[level].shape[1] - 1:
                child = np.minimum(child, self._nodes(level) - 1 - rows * width)
            way.append(Step(rows, child, nodes, lows))
            at = child + _begins(len(rows), width)
            if level:
                rest = rest - (ladder.take(at) - sums.take(at))
            low, rows = lows.take(at), rows * width + child
        return Found(rows, low, way)

    def way(self, places: Places) -> list[Step]:
        """The way to places, in rising order."""
        top, way = len(self._levels) - 1, list[Step]()
        low = self._at_top()[0].take(_nodes_above(places, top))
        for level in range(top - 1, -1, -1):
            rows, child = self._row_and_child(_nodes_above(places, level), level)
            nodes = self._rows(level, rows)
            lows = np.maximum(nodes[_LOW], low[:, None])
            way.append(Step(rows, child, nodes, lows))
            low = lows.take(child + _begins(len(rows), nodes.shape[2]))
        return way

    def _nodes(self, level: int) -> int:
        """How many there are on a level, without those that fill up its last row."""
        return self._levels[level - 1].shape[1] if level else self.n

    def _numbers(self, lows: Vector, rows: Places) -> Vector:
        """What leaves of these rows, in rising order, add to a sum: nothing where they only fill up the last one."""
        return np.where(lows < _NOBODY, lows, 0.0) if rows[-1] == self._levels[0].shape[1] - 1 else lows

    def set(self, places: Places, values: Vector, way: list[Step] | None = None) -> None:
        """Sets the numbers at these places, which are given in rising order, and, if it was found, the way to them."""
        known, at = values, places  # what is to be where in the rows, one after the other
        kept: Places | None = None  # of the ways, those that lead to a row to which none before them leads
        for level, step in enumerate(reversed(self.way(places) if way is None else way)):
            rows, child, before, lows = step if kept is None else step.only(kept)
            again = rows[1:] == rows[:-1]
            if _some(again):
                some, each = firsts(again), rows
                rows, before, lows = rows.take(some), before.take(some, axis=1), lows.take(some, axis=0)
                at = rows.searchsorted(each) * lows.shape[1] + child
                kept = some if kept is None else kept.take(some)
            else:
                at = _begins(len(rows), lows.shape[1]) + child
            self._note(level, rows, before)
            nodes = before.copy() if level else lows[None]
            if level:
                nodes[_LOW] = lows
                nodes.reshape(4, -1)[:, at] = known
            else:
                nodes.put(at, known)
            self._by_row[level][rows] = nodes.swapaxes(0, 1)
            known, at = _sums(nodes), rows
        row = self._handed_down(len(self._levels) - 1, _ROOT, self._root[_LOW])
        row[:, 0, at] = known
        self._keep_root()
        self._root[_LOW], self._root[_SECOND] = _least(row[_LOW, 0]), _UNKNOWN
        self._seen_at_top = None

    def raise_to(self, least: float) -> None:
        """Raises everything that is lower to this level."""
        low, _, second = self.lowest
        if least <= low:
            return
        self._seen_at_top = None
        if least < second:
            self._keep_root()
            self._root[_LOW] = least
            return
        way, rows, level = list[tuple[int, Places]](), _ROOT, len(self._levels) - 1
        while level >= 0 and len(rows):  # only where two different numbers below a node become equal
            nodes = self._hand_down(level, rows, least)
            way.append((level, rows))
            if level:
                at, child = np.nonzero((nodes[_LOW] == least) & (nodes[_SECOND] <= least))
                rows = rows[at] * NODES + child
            level -= 1
        for level, rows in way[:0:-1]:
            self._write(level + 1, rows)
        self._keep_root()
        self._root[:] = _sums(self._levels[-1])

    def multiply(self, power: int) -> None:
        """Multiplies all numbers by 2 to this power, which rounds nothing but what is next to nothing."""
        self._keep_root()
        self._keep(self._power, _ROOT)
        self._root[:] = _scaled(self._root, np.array([power]))
        self._power += power
        self._multiplied, self._seen_at_top = True, None

    def changes(self) -> list[Change]:
        """What was written since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def undo(self, changes: list[Change]) -> list[Change]:
        """Takes changes back, the last first; and returns what undoes that."""
        for array, rows, before in reversed(changes):
            self._keep(array, rows)
            array[rows] = before
        self._seen_at_top = None
        return self.changes()

    def _note(self, level: int, rows: Places, before: Vector) -> None:
        """These rows are about to be written, at the power of now; they were `before`, if all are at that power."""
        if self._multiplied:
            self._keep(self._by_row[level], rows)
            self._keep(self._powers[level], rows)
            self._powers[level][rows] = self._power
        else:
            self._changes.append(Change(self._by_row[level], rows, before.swapaxes(0, 1)))

    def _keep_root(self) -> None:
        self._changes.append(Change(self._root.T, _ROOT, self._root.copy().T))

    def _keep(self, array: NDArray[Any], rows: Places) -> None:
        self._changes.append(Change(array, rows, array[rows]))

    def _row_and_child(self, nodes: Places, level: int) -> tuple[Places, Places]:
        """In which row of their level nodes are, or numbers, and where in it."""
        if self._levels[level].shape[1] == 1:
            return np.zeros_like(nodes), nodes
        bits = NODE_BITS if level else LEAF_BITS
        return nodes >> bits, nodes & (2**bits - 1)

    def _rows(self, level: int, rows: Places) -> Vector:
        """The nodes of these rows."""
        nodes = self._levels[level].take(rows, axis=1)
        return _scaled(nodes, self._power - self._powers[level][rows]) if self._multiplied else nodes

    def _hand_down(self, level: int, rows: Places, least: float) -> Vector:
        """Brings these rows up to date with the nodes above them, raises them to `least`, and returns them."""
        if level + 1 == len(self._levels):
            return self._handed_down(level, rows, np.maximum(self._root[_LOW], least))
        row, child = self._row_and_child(rows, level + 1)
        above = self._levels[level + 1][_LOW, row, child]
        found = self._handed_down(level, rows, np.maximum(above, least))
        self._by_row[level][rows] = found.swapaxes(0, 1)
        return found

    def _handed_down(self, level: int, rows: Places, above: Vector) -> Vector:
        """These rows as they are under nodes whose lowest is `above`. They are still to be written; the row at the top
        is written where it is."""
        before, found = self._rows(level, rows), self._levels[level]
        self._note(level, rows, before)
        if level + 1 < len(self._levels):
            found = before.copy()
        elif self._multiplied:
            found[:] = before
        np.maximum(found[_LOW], above[:, None], out=found[_LOW])
        return found

    def _write(self, level: int, nodes: Places) -> None:
        """What nodes of this level know of the rows below, which have the same numbers."""
        rows, child = self._row_and_child(nodes, level)
        self._levels[level][:, rows, child] = _sums(self._levels[level - 1].take(nodes, axis=1))


@lru_cache(maxsize=64)
def _begins(rows: int, size: int) -> Places:
    """Where so many rows of this size begin, one after the other."""
    return np.arange(0, rows * size, size)


def firsts(again: NDArray[np.bool_]) -> Places:
    """Which of some numbers in rising order are there for the first time; of all but the first, whether `again`."""
    first = np.ones(len(again) + 1, dtype=np.bool_)
    np.logical_not(again, out=first[1:])
    return first.nonzero()[0]


def _nodes_above(places: Places, level: int) -> Places:
    """The nodes of a level that have places below them; at the lowest, the places themselves."""
    return places >> (LEAF_BITS + NODE_BITS * (level - 1)) if level else places


def _scaled(nodes: Vector, powers: Places) -> Vector:
    """Nodes times a power of two for each row. How many there are stays, and so does what is no number."""
    if not powers.any():
        return nodes
    numbers = nodes[:_COUNT]
    factor = powers.reshape(-1, *[1] * (nodes.ndim - 2))
    scaled = nodes.copy()
    np.ldexp(numbers, factor, out=scaled[:_COUNT], where=(numbers < _NOBODY) & (numbers != _UNKNOWN))
    return scaled


def _sums(nodes: Vector) -> Vector:
    """Of every row of nodes what the node above it knows."""
    lows = nodes[_LOW]
    sums = np.empty((4, len(lows)))
    low = _least(lows, axis=1, out=sums[_LOW])
    lowest = lows == low[:, None]
    if len(nodes) == 1:
        _sum(lowest, axis=1, out=sums[_COUNT])
        _least(np.where(lowest, _NOBODY, lows), axis=1, out=sums[_SECOND])
        if lows[-1, -1] == _NOBODY:  # rows are in rising order, and the last may be filled up
            lowest |= lows == _NOBODY
        _sum(np.where(lowest, 0.0, lows), axis=1, out=sums[_REST])
    else:
        counts = nodes[_COUNT]
        as_low = counts * lowest
        _sum(as_low, axis=1, out=sums[_COUNT])
        _least(np.where(lowest, nodes[_SECOND], lows), axis=1, out=sums[_SECOND])
        _sum(lows * (counts - as_low) + nodes[_REST], axis=1, out=sums[_REST])
    return sums
