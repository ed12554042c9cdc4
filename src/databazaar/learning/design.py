"""Columns as a linear model takes them, made from the consumer's rows alone: what trees read as it is.

A column of numbers is centred and scaled, and cut off where nobody of the consumer's rows comes near; what is missing
counts as the mean, with a column of its own that says so. A category is a column of zeros and ones for each value that
the consumer has often enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
FARTHEST = 5.0
"""Numbers farther from the mean, in standard deviations, count as this far."""
OFTEN, WIDEST = 5, 400
"""In how many rows a value of a category must be, and the most columns that categories have together."""


@dataclass(frozen=True, eq=False)
class Design:
    """`numbers` are the places of columns of numbers with their `center` and `spread`, `missing` those that have a
    column which says so; `values` are categories' places and codes [columns, 2].

    >>> x = np.array([[1.0, 0.0], [3.0, 1.0], [np.nan, 1.0]] * 5)
    >>> Design.of(x, categorical=[1])(np.array([[3.0, 1.0], [np.nan, 7.0]])).tolist()
    [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]
    """

    numbers: Places
    center: Numbers
    spread: Numbers
    missing: Places
    values: Places

    @classmethod
    def of(cls, x: Numbers, categorical: Sequence[int] = ()) -> Design:
        numbers = np.array([place for place in range(x.shape[1]) if place not in set(categorical)], dtype=np.int64)
        own = x[:, numbers]
        known = np.isfinite(own)
        count = np.maximum(known.sum(0), 1)
        center = np.where(known, own, 0.0).sum(0) / count
        spread = np.sqrt((np.where(known, own - center, 0.0) ** 2).sum(0) / count)
        return cls(numbers, center, spread, numbers[~known.all(0)], _often(x, categorical))

    @property
    def width(self) -> int:
        return len(self.numbers) + len(self.missing) + len(self.values)

    def __call__(self, x: Numbers) -> Numbers:
        """[rows, width]."""
        own = x[:, self.numbers]
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (own - self.center) / np.where(self.spread > 0, self.spread, np.inf)
        scaled = np.where(np.isnan(scaled), 0.0, scaled).clip(-FARTHEST, FARTHEST)
        codes = x[:, self.values[:, 0]] == self.values[:, 1]
        return np.concatenate([scaled, ~np.isfinite(x[:, self.missing]), codes], axis=1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in ("numbers", "center", "spread", "missing", "values")}

    def fits(self, features: int) -> bool:
        """Whether it is of rows with so many features."""
        places = np.concatenate([self.numbers, self.missing, self.values[:, 0]])
        sizes = len(self.numbers) == len(self.center) == len(self.spread)
        return sizes and bool(((places >= 0) & (places < features)).all())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Design:
        return cls(**{name: arrays[name] for name in ("numbers", "center", "spread", "missing", "values")})


def _often(x: Numbers, categorical: Sequence[int]) -> Places:
    """Places and codes of the most frequent values."""
    found = []
    for place in categorical:
        codes, counts = np.unique(x[np.isfinite(x[:, place]), place].astype(np.int64), return_counts=True)
        found += [(-int(many), place, int(code)) for code, many in zip(codes, counts, strict=True) if many >= OFTEN]
    return np.array(sorted(each[1:] for each in sorted(found)[:WIDEST]), dtype=np.int64).reshape(-1, 2)
