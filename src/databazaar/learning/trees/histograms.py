"""Sums of gradients, hessians and rows by feature and bin: all that growing a tree needs, and it adds up over parties.

Sums are exact. Each gradient and hessian is first rounded to a multiple of a power of two that is so large that no sum
over the round's rows needs more than the 53 bits of a float64 (a gradient keeps 53 bits less those of the number of
rows: 36 for 100,000 rows; a hessian keeps 21). Additions then have no rounding. So the order of rows and parties, how
rows are divided among parties, the number of threads and the difference of two sums make no bit of difference.

A node's sums are float64 [3, features, bins]: gradients, hessians, rows. Of some parties rows are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.learning.trees import kernels
from databazaar.learning.trees.bins import MISSING, Binned

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]

EXACT = 53
"""Bits of a float64: integers of so many bits add up without rounding."""
BLOCK_BITS = 16
"""Rows are summed in blocks of fewer than 2^16: the number of rows shares a float64 with their hessians."""
BLOCK = 2**BLOCK_BITS - 1
CACHED = 2**17
"""Places that are looked up at once: they stay in a core's cache."""
ROOT = 0


@dataclass(frozen=True)
class Grid:
    """What gradients and hessians are multiples of, powers of two. All parties of a round use the same."""

    gradient: float
    hessian: float

    @classmethod
    def of(cls, gradient: float, hessian: float, rows: int) -> Grid:
        """For gradients and hessians that are at most so large, and at most so many rows of all parties together."""
        bits = max(rows, 1).bit_length()
        return cls(_step(gradient, EXACT - bits), _step(hessian, EXACT - 2 * BLOCK_BITS))

    def round(self, gradients: Numbers, hessians: Numbers) -> tuple[Numbers, Numbers]:
        """The nearest multiples."""
        return np.rint(gradients / self.gradient) * self.gradient, np.rint(hessians / self.hessian) * self.hessian


@dataclass(frozen=True)
class Split:
    """A node's rows with a bin in `left` of this feature go to one child, the others to the other."""

    node: int
    feature: int
    bin: int
    """The last bin that goes left; −1 where the feature is a category."""
    left: NDArray[np.bool_]
    """One of each of the 256 bins."""
    children: tuple[int, int]

    def of(self, bins: Binned) -> NDArray[np.bool_]:
        """Whether rows with these bins go left. Without missing values, bin 0 turns into 255, and goes right."""
        if self.bin < 0:
            return np.take(self.left, bins)
        return bins <= self.bin if self.left[MISSING] else (bins - np.uint8(1)) < self.bin


class Source(Protocol):
    """Whoever can say what gradients add up to: rows at hand, or parties that are asked over a network.

    A grower asks for the root's sums, then, wave by wave, for those of some children of nodes that it splits, and in
    the end for the leaves' sums of each party. The arrays are the grower's from then on.
    """

    features: int
    parties: int

    def root(self) -> Numbers:
        """Sums of all rows [3, features, bins]."""
        ...

    def divide(self, splits: Sequence[Split], wanted: Sequence[int]) -> Numbers:
        """Divides the rows of nodes, then the sums of the wanted nodes [wanted, 3, features, bins]."""
        ...

    def totals(self, nodes: Sequence[int]) -> Numbers:
        """Sums of each party over the rows of nodes [parties, nodes, 3]. Here every row counts."""
        ...


class LocalRows:
    """The rows of one party or of several, one party's after the other's, on this machine."""

    def __init__(
        self,
        columns: Binned,
        gradients: Numbers,
        hessians: Numbers,
        grid: Grid,
        width: int,
        sizes: Sequence[int] = (),
        counted: int | None = None,
    ) -> None:
        """`columns`: bins [features, rows]; `width`: bins of the widest feature; `sizes`: the rows of each party. Only
        the first `counted` count as rows of a node; None counts all."""
        self.features, self._count = columns.shape
        self._counted = self._count if counted is None else counted
        self._sizes = tuple(sizes) or (self._count,)
        self.parties = len(self._sizes)
        self._columns, self._grid, self._width = columns, grid, width
        self._gradients, self._hessians = grid.round(gradients, hessians)
        self._order, self._spare = np.arange(self._count), np.empty(self._count, dtype=np.intp)
        self._places = {ROOT: (0, self._count)}

    @cached_property
    def _packed(self) -> NDArray[np.complex128]:
        """Gradients, and hessians that share a number with a one for a row that counts."""
        packed = np.empty(self._count, dtype=np.complex128)
        packed.real = self._gradients
        packed.imag = self._hessians * (2**BLOCK_BITS / self._grid.hessian)
        packed.imag[: self._counted] += 1
        return packed

    def root(self) -> Numbers:
        sums: Numbers = self._sums([ROOT])[0]
        return sums

    def divide(self, splits: Sequence[Split], wanted: Sequence[int]) -> Numbers:
        for split in splits:
            self._divide(split)
        return self._sums(wanted)

    def totals(self, nodes: Sequence[int]) -> Numbers:
        """The nodes are leaves: no row is in two of them."""
        rows = np.concatenate([self.rows(node) for node in nodes])
        place = np.repeat(np.arange(len(nodes)), [len(self.rows(node)) for node in nodes])
        if self.parties > 1:
            place += len(nodes) * np.take(np.repeat(np.arange(self.parties), self._sizes), rows)
        size = self.parties * len(nodes)
        sums = [np.bincount(place, np.take(each, rows), size) for each in (self._gradients, self._hessians)]
        sums.append(np.bincount(place, minlength=size))
        return np.stack(sums, axis=-1, dtype=np.float64).reshape(self.parties, len(nodes), 3)

    def rows(self, node: int) -> Rows:
        """Which rows are in a node, in rising order."""
        begin, end = self._places[node]
        return self._order[begin:end]

    def _divide(self, split: Split) -> None:
        begin, end = self._places[split.node]
        rows = self.rows(split.node)
        if loops := kernels.compiled():
            column, left = self._columns[split.feature], split.left.view(np.uint8)
            middle = begin + loops.divide(column, rows, left, self._spare)
            self._places |= {split.children[0]: (begin, middle), split.children[1]: (middle, end)}
            return
        goes_left = split.of(np.take(self._columns[split.feature], rows))
        left, right = np.compress(goes_left, rows), np.compress(~goes_left, rows)
        middle = begin + len(left)
        self._order[begin:middle], self._order[middle:end] = left, right
        self._places |= {split.children[0]: (begin, middle), split.children[1]: (middle, end)}

    def _sums(self, nodes: Sequence[int]) -> Numbers:
        return self._compiled_sums(loops, nodes) if (loops := kernels.compiled()) else self._array_sums(nodes)

    def _compiled_sums(self, loops: kernels.Kernels, nodes: Sequence[int]) -> Numbers:
        sums = np.empty((len(nodes), 3, self.features, self._width))
        for node, of_node in zip(nodes, sums, strict=True):
            loops.add_up(self._columns, self.rows(node), self._gradients, self._hessians, self._counted, of_node)
        return sums

    def _array_sums(self, nodes: Sequence[int]) -> Numbers:
        rows = np.concatenate([self.rows(node) for node in nodes])
        starts = np.arange(len(nodes), dtype=np.int32) * self._width
        slots = np.repeat(starts, [len(self.rows(node)) for node in nodes])
        sums = np.zeros((len(nodes), 3, self.features, self._width))
        gradients, hessians, counts = np.moveaxis(sums, 1, 0)
        for begin in range(0, len(rows), BLOCK):
            block = slice(begin, begin + BLOCK)
            packed = self._block(rows[block], slots[block], len(nodes))
            many = np.floor(packed.imag * 2.0**-BLOCK_BITS)
            gradients += packed.real
            counts += packed.imag
            counts -= many * 2.0**BLOCK_BITS
            hessians += many * self._grid.hessian
        return sums

    def _block(self, rows: Rows, slots: NDArray[np.int32], nodes: int) -> NDArray[np.complex128]:
        """Packed sums [nodes, features, bins] of fewer than 2^16 rows."""
        sums = torch.zeros(self.features, nodes * self._width, dtype=torch.complex128)
        step = max(CACHED // max(self.features, 1), 256)
        for begin in range(0, len(rows), step):
            part = rows[begin : begin + step]
            binned = np.take(self._columns, part, axis=1)
            places = torch.from_numpy(binned if nodes == 1 else binned + slots[begin : begin + step]).long()
            sums.scatter_add_(1, places, torch.from_numpy(np.take(self._packed, part)).expand(self.features, -1))
        return sums.numpy().reshape(self.features, nodes, self._width).transpose(1, 0, 2)


class Together:
    """Several sources as one: what they say, added up."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.features = sources[0].features
        self.parties = sum(source.parties for source in sources)
        self._sources = tuple(sources)

    def root(self) -> Numbers:
        return _added([source.root() for source in self._sources])

    def divide(self, splits: Sequence[Split], wanted: Sequence[int]) -> Numbers:
        return _added([source.divide(splits, wanted) for source in self._sources])

    def totals(self, nodes: Sequence[int]) -> Numbers:
        return np.concatenate([source.totals(nodes) for source in self._sources])


def _added(sums: Sequence[Numbers]) -> Numbers:
    total = sums[0].copy()
    for each in sums[1:]:
        total += each
    return total


def _step(most: float, bits: int) -> float:
    """The power of two of which numbers up to `most` are multiples with so many bits."""
    if not math.isfinite(most):
        raise BazaarError("a gradient is not a finite number: look at targets, weights and scores")
    return math.ldexp(1.0, math.frexp(most)[1] - bits) if most else 1.0
