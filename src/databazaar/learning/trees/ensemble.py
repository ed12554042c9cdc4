"""The model: a start and rounds of trees, one tree a class. It is never changed: a round more is another ensemble.

Kept and delivered it is one array of bytes: the arrays of its bins and trees as safetensors, which hold numbers and
nothing that could be executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Binned, Bins
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Tree
from databazaar.vectors import HashedArray, pack, unpack

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
    size = 0
    """Growing takes one thread, however large a tree is."""

    @cached_property
    def stored(self) -> HashedArray:
        """All of it as one array of bytes."""
        about = np.frombuffer(json.dumps(asdict(self.objective)).encode(), dtype=np.uint8)
        bins = {f"bins.{name}": array for name, array in self.bins.arrays().items()}
        trees = {f"trees.{name}": array for name, array in self._arrays().items()}
        packed = pack({"objective": about, "start": self.start, **bins, **trees})
        return HashedArray(np.frombuffer(packed, dtype=np.uint8))

    @classmethod
    def restored(cls, stored: NDArray[Any]) -> Ensemble:
        """The ensemble that an array holds. What does not fit together is refused."""
        try:
            arrays = unpack(stored.tobytes())
            objective = Objective(**json.loads(arrays["objective"].tobytes()))
            of_bins, of_trees = (
                {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}
                for kind in ("bins.", "trees.")
            )
            ensemble = cls(Bins.from_arrays(of_bins), objective, arrays["start"])
            trees = _trees(of_trees)
            for place in range(0, len(trees), objective.classes):
                ensemble = ensemble.appended(trees[place : place + objective.classes])
            _refuse_misfits(ensemble)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as reason:
            raise BazaarError(f"these bytes are no boosted trees ({reason!s:.80}): use those that were saved") from None
        return ensemble

    def appended(self, trees: Sequence[Tree]) -> Ensemble:
        """With one round more."""
        if len(trees) != self.objective.classes:
            raise BazaarError(f"a round has {self.objective.classes} trees, one a class, and not {len(trees)}")
        return replace(self, rounds=(*self.rounds, tuple(trees)))

    def add_to(self, scores: Numbers, binned: Binned, first: int = 0) -> None:
        """Adds to the scores of binned rows [rows, classes] what the rounds from `first` on add.

        A row's scores need not be computed anew when it is looked at again: the sums are the same to the bit.
        """
        for trees in self.rounds[first:]:
            for place, tree in enumerate(trees):
                scores[:, place] += tree.value[tree.leaf_of(binned)]

    def scores(self, binned: Binned) -> Numbers:
        """Scores of binned rows [rows, classes]: summed as LightGBM does, the start with the first tree."""
        scores = np.tile(self.start, (len(binned), 1))
        self.add_to(scores, binned)
        return scores

    def scaled(self, scale: float, mean: float) -> Ensemble:
        """The same trees, whose scores s become s · scale + mean."""
        rounds = tuple(tuple(replace(tree, value=tree.value * scale) for tree in trees) for trees in self.rounds)
        return replace(self, start=self.start * scale + mean, rounds=rounds)

    def outputs(self, x: ArrayLike) -> Numbers:
        """Scores of raw rows [rows, classes]."""
        return self.scores(self.bins.apply(x))

    @property
    def size_in_words(self) -> str:
        return f"{len(self.rounds):,} rounds"

    def predict(self, x: ArrayLike) -> Numbers:
        """Answers for raw rows [rows, features]: probabilities or numbers."""
        return self.objective.answers(self.outputs(x))

    def importance(self, by: str = "gain") -> Numbers:
        """Of each feature the sum of its splits' gains, or by="split" their number."""
        if by not in ("gain", "split"):
            raise BazaarError(f"importance by {by!r} is unknown: use gain or split")
        total = np.zeros(self.bins.features)
        for tree in chain.from_iterable(self.rounds):
            np.add.at(total, tree.feature, tree.gain if by == "gain" else 1.0)
        return total

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The trees, joined; with `splits` and `leaves`, the sizes of each."""
        trees = [*chain.from_iterable(self.rounds)]
        joined: dict[str, NDArray[Any]] = {
            "splits": np.array([len(tree.feature) for tree in trees], dtype=np.int64),
            "leaves": np.array([tree.leaves for tree in trees], dtype=np.int64),
        }
        for name in (*OF_SPLITS, *OF_LEAVES):
            joined[name] = np.concatenate([getattr(tree, name) for tree in [*trees, _none()]])
        return joined


def _trees(arrays: Mapping[str, NDArray[Any]]) -> list[Tree]:
    if not len(arrays["splits"]):
        return []
    ends = {
        name: np.cumsum(arrays["splits" if name in OF_SPLITS else "leaves"])[:-1] for name in (*OF_SPLITS, *OF_LEAVES)
    }
    cut = {name: np.split(arrays[name], at) for name, at in ends.items()}
    return [Tree(**{name: cut[name][place] for name in ends}) for place in range(len(arrays["splits"]))]


def _refuse_misfits(ensemble: Ensemble) -> None:
    """Refuses trees that name features or nodes that there are not: rows would go nowhere, or round in a circle."""
    if ensemble.start.shape != (ensemble.objective.classes,) or not np.isfinite(ensemble.start).all():
        raise ValueError("the start does not fit the objective")
    for tree in chain.from_iterable(ensemble.rounds):
        splits, children = len(tree.feature), tree.children
        within = (tree.feature >= 0) & (tree.feature < ensemble.bins.features)
        later = (children > np.arange(splits)[:, None]) & (children < splits)  # a child that is split is split later
        leaf = (children < 0) & (children >= -tree.leaves)
        if not (within.all() and (later | leaf).all() and np.isfinite(tree.value).all() and tree.leaves == splits + 1):
            raise ValueError("a tree's parts do not fit together")


def _none() -> Tree:
    """A tree of nothing: it gives joined arrays their types and shapes."""
    integers, numbers = np.empty(0, dtype=np.int32), np.empty(0)
    sums, left = np.empty((0, 3)), np.empty((0, 32), dtype=np.uint8)
    return Tree(integers, integers, left, integers.reshape(0, 2), numbers, sums, sums, numbers)


assert {*OF_SPLITS, *OF_LEAVES} == {field.name for field in fields(Tree)}
