"""The model: a start and rounds of trees, one tree a class. It is never changed: a round more is another ensemble.

A snapshot need not write all trees anew. `arrays(first)` are the rounds from one on, `extended` puts them back, and
`digest` is a chain: that of an ensemble with one round more needs that round's trees alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Binned, Bins
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Tree

Numbers = NDArray[np.float64]

OF_SPLITS = ("feature", "bin", "left", "children", "gain", "split_sums")
OF_LEAVES = ("leaf_sums", "value")


@dataclass(frozen=True)
class Ensemble:
    """Scores are `start` and what the trees add."""

    bins: Bins
    objective: Objective
    start: Numbers
    """[classes]."""
    rounds: tuple[tuple[Tree, ...], ...] = ()
    digest: str = ""
    """SHA-256 over the rounds before and this round's trees."""

    def appended(self, trees: Sequence[Tree]) -> Ensemble:
        """With one round more."""
        if len(trees) != self.objective.classes:
            raise BazaarError(f"a round has {self.objective.classes} trees, one a class, and not {len(trees)}")
        digest = hashlib.sha256(self.digest.encode())
        for array in chain.from_iterable(tree.arrays().values() for tree in trees):
            digest.update(np.ascontiguousarray(array).data)
        return replace(self, rounds=(*self.rounds, tuple(trees)), digest=digest.hexdigest())

    def until(self, rounds: int) -> Ensemble:
        """The first rounds alone: the best model, where later rounds made it worse."""
        return Ensemble(self.bins, self.objective, self.start).extended(self.arrays(0, rounds))

    def added(self, binned: Binned, first: int = 0, last: int | None = None) -> Numbers:
        """What the rounds from `first` to before `last` add to the scores of binned rows [rows, classes].

        A provider's scores need not be computed anew when it is asked again: those of the rounds since are added.
        """
        scores = np.zeros((len(binned), self.objective.classes))
        for trees in self.rounds[first:last]:
            for place, tree in enumerate(trees):
                scores[:, place] += tree.value[tree.leaf_of(binned)]
        return scores

    def scores(self, binned: Binned) -> Numbers:
        """Scores of binned rows [rows, classes]: summed as LightGBM does, the start with the first tree."""
        scores = np.tile(self.start, (len(binned), 1))
        for trees in self.rounds:
            for place, tree in enumerate(trees):
                scores[:, place] += tree.value[tree.leaf_of(binned)]
        return scores

    def predict(self, x: ArrayLike) -> Numbers:
        """Answers for raw rows [rows, features]: probabilities or numbers."""
        return self.objective.answers(self.scores(self.bins.apply(x)))

    def importance(self, by: str = "gain") -> Numbers:
        """Of each feature the sum of its splits' gains, or by="split" their number."""
        if by not in ("gain", "split"):
            raise BazaarError(f"importance by {by!r} is unknown: use gain or split")
        total = np.zeros(self.bins.features)
        for tree in chain.from_iterable(self.rounds):
            np.add.at(total, tree.feature, tree.gain if by == "gain" else 1.0)
        return total

    def arrays(self, first: int = 0, last: int | None = None) -> dict[str, NDArray[Any]]:
        """The rounds from `first` to before `last`, joined; with `splits` and `leaves`, the sizes of each tree."""
        trees = [*chain.from_iterable(self.rounds[first:last])]
        joined: dict[str, NDArray[Any]] = {
            "splits": np.array([len(tree.feature) for tree in trees], dtype=np.int64),
            "leaves": np.array([tree.leaves for tree in trees], dtype=np.int64),
        }
        for name in (*OF_SPLITS, *OF_LEAVES):
            joined[name] = np.concatenate([getattr(tree, name) for tree in [*trees, _none()]])
        return joined

    def extended(self, arrays: Mapping[str, NDArray[Any]]) -> Ensemble:
        """With the rounds of such arrays behind its own."""
        ensemble = self
        found = _trees(arrays)
        for place in range(0, len(found), self.objective.classes):
            trees = found[place : place + self.objective.classes]
            ensemble = ensemble.appended(trees)
        return ensemble


def _trees(arrays: Mapping[str, NDArray[Any]]) -> list[Tree]:
    if not len(arrays["splits"]):
        return []
    ends = {
        name: np.cumsum(arrays["splits" if name in OF_SPLITS else "leaves"])[:-1] for name in (*OF_SPLITS, *OF_LEAVES)
    }
    cut = {name: np.split(arrays[name], at) for name, at in ends.items()}
    return [Tree(**{name: cut[name][place] for name in ends}) for place in range(len(arrays["splits"]))]


def _none() -> Tree:
    """A tree of nothing: it gives joined arrays their types and shapes."""
    integers, numbers = np.empty(0, dtype=np.int32), np.empty(0)
    sums, left = np.empty((0, 3)), np.empty((0, 32), dtype=np.uint8)
    return Tree(integers, integers, left, integers.reshape(0, 2), numbers, sums, sums, numbers)


assert {*OF_SPLITS, *OF_LEAVES} == {field.name for field in fields(Tree)}
