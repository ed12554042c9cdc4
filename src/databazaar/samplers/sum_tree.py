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
_LOW, _SECOND, _REST, _COUNT = range(4)
_sum, _least, _most, _some = np.add.reduce, np.minimum.reduce, np.maximum.reduce, np.logical_or.reduce
"""The arrays' own methods come to the same, by a way that takes longer than a row."""
_ROOT = np.zeros(1, dtype=np.int64)
_FIRST = np.ones(1, dtype=np.bool_)


class Change(NamedTuple):
    """Rows of an array as they were before they were written."""

    array: NDArray[Any]
    rows: Places
    before: NDArray[Any]


class _Way(NamedTuple):
    """The rows that hold some nodes: each row once, and where in them, one after the other, every node's lowest is."""

    rows: Places
    at: Places

    @classmethod
    def up(cls, nodes: Places, level: int) -> _Way:
        """The way from nodes, or from numbers on level 0, which are given in rising order, to the rows that they are
        in."""
        bits, size = (NODE_BITS, 4 * NODES) if level else (LEAF_BITS, LEAVES)
        rows, child = nodes >> bits, nodes & (2**bits - 1)
        again = rows[1:] == rows[:-1]
        if not _some(again):
            return cls(rows, _begins(len(rows), size) + child)
        first = np.concatenate([_FIRST, ~again])
        return cls(rows[first], (first.cumsum() - 1) * size + child)


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
        leaves = np.full((-(-n // LEAVES), 1, LEAVES), value)
        leaves.ravel()[n:] = _NOBODY
        self._levels = [leaves]  # (rows, what is known, how many): of leaves the number alone, of nodes all four
        self._powers = [np.zeros(len(leaves), dtype=np.int64)]
        while (nodes := len(self._levels[-1])) > 1:
            level = np.zeros((1, 4, nodes) if nodes <= TOP else (-(-nodes // NODES), 4, NODES))
            level[:, :_REST] = _NOBODY
            self._levels.append(level)
            self._powers.append(np.zeros(len(level), dtype=np.int64))
            self._write(len(self._levels) - 1, np.arange(nodes))
        self._four = [np.arange(4) * level.shape[2] for level in self._levels]  # a node's four numbers, from its lowest
        self._root = _sums(self._levels[-1])
        self._power = _ROOT.copy()

    @property
    def lowest(self) -> tuple[float, int, float]:
        """The lowest number, how many are that low, and the second lowest."""
        low, second, _, count = self._root[0].tolist()
        return low, int(count), second

    @property
    def above_lowest(self) -> float:
        """The sum of those that are not the lowest."""
        return float(self._root[0, _REST])

    @property
    def total(self) -> float:
        low, _, rest, count = self._root[0].tolist()
        return float(low * count + rest)

    def get(self, places: Places) -> Vector:
        """The numbers at these places."""
        values = np.full(len(places), self._root[0, _LOW])
        for level, nodes in enumerate(self._levels):
            rows, child = self._row_and_child(_nodes_above(places, level), level)
            lows = nodes[rows, _LOW, child]
            values = np.maximum(values, np.ldexp(lows, self._power - self._powers[level][rows]))
        return values

    def dense(self) -> Vector:
        """All numbers."""
        low: Vector = self._root[:, _LOW]
        for level in reversed(range(len(self._levels))):
            rows = self._rows(level, np.arange(len(self._levels[level])))
            low = np.maximum(rows[:, _LOW], low[: len(rows), None]).ravel()
        return low[: self.n]

    def before(self, places: Places) -> Vector:
        """Of every place the sum of the numbers before it."""
        each, low = np.arange(len(places)), np.full(len(places), self._root[0, _LOW])
        sum_before = np.zeros(len(places))
        for level in reversed(range(len(self._levels))):
            own, child = self._row_and_child(_nodes_above(places, level), level)
            nodes = self._rows(level, own)
            lows = np.maximum(nodes[:, _LOW], low[:, None])
            sums = lows * nodes[:, _COUNT] + nodes[:, _REST] if level else self._numbers(lows, own)
            sum_before += np.where(child > 0, sums.cumsum(axis=1)[each, child - 1], 0.0)
            low = lows[each, child]
        return sum_before

    def find(self, targets: Vector) -> tuple[Places, Vector]:
        """Of every target the first place at which the numbers up to it sum to more, and the number there."""
        rows, low, rest = self._find_at_top(targets)
        for level in range(len(self._levels) - 2, -1, -1):
            nodes = self._rows(level, rows)
            width = nodes.shape[2]
            lows = np.maximum(nodes[:, _LOW], low[:, None])
            sums = lows * nodes[:, _COUNT] + nodes[:, _REST] if level else self._numbers(lows, rows)
            ladder = sums.cumsum(axis=1)
            child = _sum(ladder <= rest[:, None], axis=1)
            if _most(child) == width:  # rounding leads beyond all that there is in a row
                child = np.minimum(child, np.minimum(self._nodes(level) - rows * width, width) - 1)
            at = child + _begins(len(rows), width)
            if level:
                rest = rest - (ladder.take(at) - sums.take(at))
            low, rows = lows.take(at), rows * width + child
        return rows, low

    def _nodes(self, level: int) -> int:
        """How many there are on a level, without those that fill up its last row."""
        return len(self._levels[level - 1]) if level else self.n

    def _numbers(self, lows: Vector, rows: Places) -> Vector:
        """What leaves add to a sum: nothing where they only fill up the last row."""
        filled = self.n == len(self._levels[0]) * LEAVES or _most(rows) < len(self._levels[0]) - 1
        return lows if filled else np.where(lows < _NOBODY, lows, 0.0)

    def _find_at_top(self, targets: Vector) -> tuple[Places, Vector, Vector]:
        """The same on the highest level, where there is one row for all: which child, its lowest, and what is left of
        the target there."""
        top = len(self._levels) - 1
        nodes = self._rows(top, _ROOT)[0]
        lows = np.maximum(nodes[_LOW], self._root[0, _LOW])
        sums = lows * nodes[_COUNT] + nodes[_REST] if top else self._numbers(lows, _ROOT)
        ladder = sums.cumsum()
        child = np.minimum(ladder.searchsorted(targets, side="right"), self._nodes(top) - 1)
        return child, lows[child], targets - (ladder[child] - sums[child])

    def set(self, places: Places, values: Vector) -> None:
        """Sets the numbers at these places, which are given in rising order."""
        way, rows, top = list[_Way](), places, len(self._levels) - 1
        for level in range(top):
            way.append(_Way.up(rows, level))
            rows = way[-1].rows
        way.append(_Way(_ROOT, rows))
        above, found = self._root[:, _LOW], list[Vector]()
        for level in range(top, 0, -1):
            found.append(self._handed_down(level, way[level].rows, above))
            above = found[-1].take(way[level].at)
        nodes = self._handed_down(0, way[0].rows, above)
        nodes.put(way[0].at, values)
        for level in range(top):
            self._levels[level][way[level].rows] = nodes
            sums, nodes = _sums(nodes), found.pop()
            nodes.put(way[level + 1].at[:, None] + self._four[level + 1], sums)
        self._keep(self._root, _ROOT)
        self._root[:] = _sums(nodes)

    def raise_to(self, least: float) -> None:
        """Raises everything that is lower to this level."""
        low, _, second = self.lowest
        if least <= low:
            return
        if least < second:
            self._keep(self._root, _ROOT)
            self._root[0, _LOW] = least
            return
        way, rows, level = list[tuple[int, Places]](), _ROOT, len(self._levels) - 1
        while level >= 0 and len(rows):  # only where two different numbers below a node become equal
            nodes = self._hand_down(level, rows, least)
            way.append((level, rows))
            if level:
                at, child = np.nonzero((nodes[:, _LOW] == least) & (nodes[:, _SECOND] <= least))
                rows = rows[at] * NODES + child
            level -= 1
        for level, rows in way[:0:-1]:
            self._write(level + 1, rows)
        self._keep(self._root, _ROOT)
        self._root[:] = _sums(self._levels[-1])

    def multiply(self, power: int) -> None:
        """Multiplies all numbers by 2 to this power, which rounds nothing but what is next to nothing."""
        self._keep(self._root, _ROOT)
        self._keep(self._power, _ROOT)
        self._root[:] = _scaled(self._root, np.array([power]))
        self._power += power
        self._multiplied = True

    def changes(self) -> list[Change]:
        """What was written since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def undo(self, changes: list[Change]) -> list[Change]:
        """Takes changes back, the last first; and returns what undoes that."""
        for array, rows, before in reversed(changes):
            self._keep(array, rows)
            array[rows] = before
        return self.changes()

    def _keep(self, array: NDArray[Any], rows: Places) -> None:
        self._changes.append(Change(array, rows, array[rows]))

    def _row_and_child(self, nodes: Places, level: int) -> tuple[Places, Places]:
        """In which row of their level nodes are, or numbers, and where in it."""
        if len(self._levels[level]) == 1:
            return np.zeros_like(nodes), nodes
        bits = NODE_BITS if level else LEAF_BITS
        return nodes >> bits, nodes & (2**bits - 1)

    def _rows(self, level: int, rows: Places) -> Vector:
        """The nodes of these rows."""
        nodes = self._levels[level].take(rows, axis=0)
        return _scaled(nodes, self._power - self._powers[level][rows]) if self._multiplied else nodes

    def _hand_down(self, level: int, rows: Places, least: float) -> Vector:
        """Brings these rows up to date with the nodes above them, raises them to `least`, and returns them."""
        if level + 1 == len(self._levels):
            return self._handed_down(level, rows, np.maximum(self._root[:, _LOW], least))
        row, child = self._row_and_child(rows, level + 1)
        above = self._levels[level + 1][row, _LOW, child]
        found = self._levels[level][rows] = self._handed_down(level, rows, np.maximum(above, least))
        return found

    def _handed_down(self, level: int, rows: Places, above: Vector) -> Vector:
        """These rows as they are under nodes whose lowest is `above`. They are still to be written; the row at the top
        is written where it is."""
        nodes, top = self._levels[level], level + 1 == len(self._levels)
        before = nodes.copy() if top else nodes.take(rows, axis=0)
        self._changes.append(Change(nodes, rows, before))
        found = nodes if top else before.copy()
        if self._multiplied:
            powers = self._powers[level]
            self._keep(powers, rows)
            found[:] = _scaled(found, self._power - powers[rows])
            powers[rows] = self._power
        np.maximum(found[:, _LOW], above[:, None], out=found[:, _LOW])
        return found

    def _write(self, level: int, nodes: Places) -> None:
        """What nodes of this level know of the rows below, which have the same numbers."""
        rows, child = self._row_and_child(nodes, level)
        self._levels[level][rows, :, child] = _sums(self._levels[level - 1][nodes])


@lru_cache(maxsize=64)
def _begins(rows: int, size: int) -> Places:
    """Where so many rows of this size begin, one after the other."""
    return np.arange(0, rows * size, size)


def _nodes_above(places: Places, level: int) -> Places:
    """The nodes of a level that have places below them; at the lowest, the places themselves."""
    return places >> (LEAF_BITS + NODE_BITS * (level - 1)) if level else places


def _scaled(nodes: Vector, powers: Places) -> Vector:
    """Nodes times a power of two for each row. How many there are stays, and so does the lowest of none."""
    if not powers.any():
        return nodes
    numbers = nodes[:, :_COUNT]
    factor = powers.reshape(-1, *[1] * (nodes.ndim - 1))
    scaled = nodes.copy()
    np.ldexp(numbers, factor, out=scaled[:, :_COUNT], where=numbers < _NOBODY)
    return scaled


def _sums(nodes: Vector) -> Vector:
    """Of every row of nodes what the node above it knows."""
    lows = nodes[:, _LOW]
    sums = np.empty((len(nodes), 4))
    low = _least(lows, axis=1, out=sums[:, _LOW])
    higher = lows > low[:, None]
    if nodes.shape[1] == 1:
        _least(np.where(higher, lows, _NOBODY), axis=1, out=sums[:, _SECOND])
        numbers = higher & (lows < _NOBODY) if lows[-1, -1] == _NOBODY else higher  # rows are in rising order
        _sum(np.where(numbers, lows, 0.0), axis=1, out=sums[:, _REST])
        np.subtract(lows.shape[1], _sum(higher, axis=1), out=sums[:, _COUNT])
    else:
        counts = nodes[:, _COUNT]
        not_low = counts * higher
        _least(np.where(higher, lows, nodes[:, _SECOND]), axis=1, out=sums[:, _SECOND])
        _sum(lows * not_low + nodes[:, _REST], axis=1, out=sums[:, _REST])
        _sum(counts - not_low, axis=1, out=sums[:, _COUNT])
    return sums
