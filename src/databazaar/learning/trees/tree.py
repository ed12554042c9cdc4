"""One tree as arrays, with each party's part of every leaf's value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.learning.trees import kernels
from databazaar.learning.trees.bins import Binned

Numbers = NDArray[np.float64]
Places = NDArray[np.int32]

FEW = 4_000
"""So many rows pass all splits of a level at once; more are divided split by split, which reads less memory."""


@dataclass(frozen=True)
class Tree:
    """Splits in the order in which they were made, the root first. A child c ≥ 0 is a split, others are leaf −c − 1."""

    feature: Places
    bin: Places
    """The last bin that goes left; −1 where the feature is a category."""
    left: NDArray[np.uint8]
    """Which of the 256 bins go left, as bits [splits, 32]."""
    children: Places
    """[splits, 2]: left and right."""
    gain: Numbers
    split_sums: Numbers
    """[splits, 3]: gradient, hessian and rows of each split's node."""
    leaf_sums: Numbers
    """[leaves, 3]."""
    value: Numbers
    """What each leaf adds to its rows' scores."""

    @property
    def leaves(self) -> int:
        return len(self.value)

    def leaf_of(self, binned: Binned) -> NDArray[np.intp]:
        """The leaf of each binned row [rows, features]."""
        if not len(self.feature):
            return np.zeros(len(binned), dtype=np.intp)
        goes_left = np.unpackbits(self.left, axis=1, bitorder="little").view(np.bool_)
        if loops := kernels.compiled():
            leaves = np.empty(len(binned), dtype=np.intp)
            loops.find_leaves(binned, self.feature, goes_left, self.children, leaves)
            return leaves
        return self._by_level(binned, goes_left) if len(binned) <= FEW else self._by_split(binned, goes_left)

    def _by_level(self, binned: Binned, goes_left: NDArray[np.bool_]) -> NDArray[np.intp]:
        rows = np.arange(len(binned))
        node = np.zeros(len(binned), dtype=np.intp)
        while len(rows):
            at = node[rows]
            left = goes_left[at, binned[rows, self.feature[at]]]
            below = self.children[at, np.where(left, 0, 1)]
            node[rows] = below
            rows = rows[below >= 0]
        return -node - 1

    def _by_split(self, binned: Binned, goes_left: NDArray[np.bool_]) -> NDArray[np.intp]:
        leaf = np.empty(len(binned), dtype=np.intp)
        rows_of = {0: np.arange(len(binned))}
        for split, feature in enumerate(self.feature):
            rows = rows_of.pop(split)
            left = goes_left[split][binned[rows, feature]]
            for child, some in zip(self.children[split].tolist(), (rows[left], rows[~left]), strict=True):
                if child >= 0:
                    rows_of[child] = some
                else:
                    leaf[some] = -child - 1
        return leaf

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Tree:
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class Grown:
    """A tree, what each party brought to it, and the leaf that each row ended in where rows are at hand."""

    tree: Tree
    parts: Numbers
    """[parties, leaves]: the parts of the leaves' values; they add up to them."""
    nodes: tuple[int, ...]
    """The node of each leaf, as the source knows it."""


def leaves_of(grown: Sequence[Grown], binned: Binned) -> NDArray[np.intp]:
    """The leaf of each row in each tree [rows, trees]."""
    return np.stack([each.tree.leaf_of(binned) for each in grown], axis=1)


def additions(grown: Sequence[Grown], leaves: NDArray[np.intp]) -> Numbers:
    """What trees, one a class, add to the scores of rows in these leaves [rows, classes]."""
    return np.stack([each.tree.value[at] for each, at in zip(grown, leaves.T, strict=True)], axis=-1)


def part_predictions(grown: Sequence[Grown], leaves: NDArray[np.intp]) -> Numbers:
    """What each party's part adds to them [parties, rows, classes]; of all parties it is what the trees add."""
    return np.stack([each.parts[:, at] for each, at in zip(grown, leaves.T, strict=True)], axis=-1)


def halfway_gains(utility: Callable[[Numbers], Numbers], scores: Numbers, parts: Numbers) -> Numbers:
    """Each part's gain when half of all parts' move has been made: U(m + part / 2) − U(m − part / 2) for all at once.

    `scores` [rows, classes] before the move, `parts` [parties, rows, classes]; the utility takes
    [parties, rows, classes] and gives [parties]. Of a quadratic utility the gains add up to what the move brings.

    >>> parts = np.array([[[1.0]], [[3.0]]])
    >>> halfway_gains(lambda scores: -((scores - 2.0) ** 2).mean((1, 2)), np.zeros((1, 1)), parts)
    array([0., 0.])
    """
    middle = scores + parts.sum(0) / 2
    return utility(middle + parts / 2) - utility(middle - parts / 2)
