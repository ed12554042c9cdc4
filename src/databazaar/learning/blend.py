"""A linear model and trees, blended: shares of both, which add up to one, of what they add to a score."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError
from databazaar.learning.design import Design
from databazaar.learning.grams import Bags
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.vectors import HashedArray, pack, unpack

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Linear:
    """`columns` has weights and an intercept for each class [classes, width + 1], of the columns that a design makes;
    `grams` those of the buckets of grams [buckets, classes], where there are texts (learning/grams.py)."""

    columns: Numbers
    grams: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def scores(self, columns: Numbers, grams: Numbers) -> Numbers:
        """Of columns [rows, width] and buckets of grams [rows, slots]."""
        scores: Numbers = columns @ self.columns[:, :-1].T + self.columns[:, -1]
        if len(self.grams):
            bags = Bags.of(torch.from_numpy(grams), len(self.grams))
            scores = scores + bags.scores(torch.from_numpy(self.grams)).numpy()
        return scores


@dataclass(frozen=True, eq=False)
class Blend:
    """Scores are (1 − weight) · linear + weight · trees. The linear model is one of the columns that `design` makes of
    the trees' features, and of the grams, which are the features after those."""

    design: Design
    linear: Linear
    trees: Ensemble
    weight: float
    size = 0
    """Its computations take one thread."""

    @cached_property
    def stored(self) -> HashedArray:
        """All of it as one array of bytes."""
        arrays: dict[str, NDArray[Any]] = {f"design.{name}": array for name, array in self.design.arrays().items()}
        arrays["linear"] = self.linear.columns
        if len(self.linear.grams):
            arrays["grams"] = self.linear.grams
        arrays |= {"weight": np.array([self.weight]), "trees": self.trees.stored.array}
        return HashedArray(np.frombuffer(pack(arrays), dtype=np.uint8))

    @classmethod
    def restored(cls, stored: NDArray[Any]) -> Blend:
        """The blend that an array holds. What does not fit together is refused."""
        try:
            arrays = unpack(stored.tobytes())
            design = Design.from_arrays({name.removeprefix("design."): array for name, array in arrays.items()})
            linear = Linear(arrays["linear"], *(arrays[name] for name in ("grams",) if name in arrays))
            found = cls(design, linear, Ensemble.restored(arrays["trees"]), float(arrays["weight"][0]))
            shape = found.trees.objective.classes, design.width + 1
            numbers = np.isfinite(linear.columns).all() and np.isfinite(linear.grams).all() and 0 <= found.weight <= 1
            grams = linear.grams.ndim == 2 and (not len(linear.grams) or linear.grams.shape[1] == shape[0])
            if linear.columns.shape != shape or not grams or not numbers or not design.fits(found.trees.bins.features):
                raise ValueError("its parts do not fit together")
        except (ValueError, TypeError, KeyError, IndexError) as reason:
            raise BazaarError(f"these bytes are no blend ({reason!s:.80}): use those that were saved") from None
        return found

    def linear_scores(self, x: Numbers) -> Numbers:
        """Of raw rows [rows, classes]."""
        return self.linear.scores(self.design(x), x[:, self.trees.bins.features :])

    def mixed(self, linear: Numbers, trees: Numbers) -> Numbers:
        """Of what both say, or of what both change."""
        mixed: Numbers = (1 - self.weight) * linear + self.weight * trees
        return mixed

    def outputs(self, x: ArrayLike) -> Numbers:
        """Scores of raw rows [rows, classes]."""
        rows = np.asarray(x, dtype=np.float64)
        return self.mixed(self.linear_scores(rows), self.trees.outputs(rows[:, : self.trees.bins.features]))

    @property
    def size_in_words(self) -> str:
        return f"{self.weight:.0%} of {self.trees.size_in_words} of trees, the rest linear"
