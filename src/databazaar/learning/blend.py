"""A linear model and trees, blended: shares of both, which add up to one, of what they add to a score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError
from databazaar.learning.design import Design
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.vectors import HashedArray, pack, unpack

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blend:
    """Scores are (1 − weight) · linear + weight · trees. `linear` has weights and an intercept for each class
    [classes, width + 1], of the columns that `design` makes."""

    design: Design
    linear: Numbers
    trees: Ensemble
    weight: float
    size = 0
    """Its computations take one thread."""

    @cached_property
    def stored(self) -> HashedArray:
        """All of it as one array of bytes."""
        design = {f"design.{name}": array for name, array in self.design.arrays().items()}
        rest = {"linear": self.linear, "weight": np.array([self.weight]), "trees": self.trees.stored.array}
        return HashedArray(np.frombuffer(pack({**design, **rest}), dtype=np.uint8))

    @classmethod
    def restored(cls, stored: NDArray[Any]) -> Blend:
        """The blend that an array holds. What does not fit together is refused."""
        try:
            arrays = unpack(stored.tobytes())
            design = Design.from_arrays({name.removeprefix("design."): array for name, array in arrays.items()})
            found = cls(design, arrays["linear"], Ensemble.restored(arrays["trees"]), float(arrays["weight"][0]))
            shape = found.trees.objective.classes, design.width + 1
            numbers = np.isfinite(found.linear).all() and 0 <= found.weight <= 1
            if found.linear.shape != shape or not numbers or not design.fits(found.trees.bins.features):
                raise ValueError("its parts do not fit together")
        except (ValueError, TypeError, KeyError, IndexError) as reason:
            raise BazaarError(f"these bytes are no blend ({reason!s:.80}): use those that were saved") from None
        return found

    def linear_scores(self, x: Numbers) -> Numbers:
        """Of raw rows [rows, classes]."""
        scores: Numbers = self.design(x) @ self.linear[:, :-1].T + self.linear[:, -1]
        return scores

    def mixed(self, linear: Numbers, trees: Numbers) -> Numbers:
        """Of what both say, or of what both change."""
        mixed: Numbers = (1 - self.weight) * linear + self.weight * trees
        return mixed

    def outputs(self, x: ArrayLike) -> Numbers:
        """Scores of raw rows [rows, classes]."""
        rows = np.asarray(x, dtype=np.float64)
        return self.mixed(self.linear_scores(rows), self.trees.outputs(rows))

    @property
    def size_in_words(self) -> str:
        return f"{self.weight:.0%} of {self.trees.size_in_words} of trees, the rest linear"
