"""What a stopping rule may look at: how far a method that samples permutations has come, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from databazaar.valuation.result import Cost

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """How far a method has come: estimates after each of the latest permutations (the newest last), and costs."""

    estimates: Sequence[Vector] | Vector
    standard_errors: Vector
    permutations: int
    seconds: float = 0.0
    oracle_calls: float = 0
    utility_evaluations: float = 0


@dataclass(frozen=True, eq=False)
class Histories:
    """The histories after each permutation of a block: row r is that after permutation `begun` + r + 1.

    `estimates` [earlier + block, n] begins with those of `earlier` permutations before the block. What was spent up to
    the block and in it is spread evenly over its permutations.
    """

    estimates: Vector
    standard_errors: Vector
    earlier: int
    begun: int
    before: Cost
    during: Cost

    def __len__(self) -> int:
        return len(self.standard_errors)

    def at(self, row: int) -> History:
        share = (row + 1.0) / len(self)
        before, during = self.before, self.during
        return History(
            self.estimates[: self.earlier + row + 1],
            self.standard_errors[row],
            self.begun + row + 1,
            before.seconds + during.seconds * share,
            before.oracle_calls + during.oracle_calls * share,
            before.utility_evaluations + during.utility_evaluations * share,
        )

    def spent(self, name: str) -> Vector:
        """What one of the costs has come to by each row."""
        before, during = getattr(self.before, name), getattr(self.during, name)
        return np.asarray(before + during * (self._numbers / len(self)))

    @property
    def permutations(self) -> Vector:
        return self.begun + self._numbers

    @cached_property
    def _numbers(self) -> Vector:
        return np.arange(1.0, len(self) + 1)
