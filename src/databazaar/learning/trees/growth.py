"""The settings of growing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError


@dataclass(frozen=True)
class Growth:
    """How trees grow. `leaves`: the most that a tree has, the best split first; `depth`: the longest way to a leaf, 0
    for any. `monotone`: for each feature 1 (the answer rises with it), −1 (falls) or 0; empty for none.

    A feature with more than `few_categories` in a node could fit its noise. There each side of a split has
    `category_rows` at least, groups of so many are moved across at once, and the gain is that with `category_l2` more.
    """

    rate: float = 0.1
    leaves: int = 31
    depth: int = 0
    min_rows: int = 20
    min_hessian: float = 1e-3
    l2: float = 1.0
    min_gain: float = 0.0
    category_l2: float = 10.0
    category_smoothing: float = 10.0
    category_rows: int = 100
    few_categories: int = 4
    monotone: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        least = {"leaves": 2, "depth": 0, "min_rows": 1, "l2": 0, "min_gain": 0}
        least |= {"category_l2": 0, "category_smoothing": 0, "category_rows": 1, "few_categories": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise BazaarError(f"{name} is {getattr(self, name)}: use {bound} or more")
        if self.rate <= 0 or self.min_hessian <= 0:
            raise BazaarError("rate and min_hessian must be above 0")
        if not set(self.monotone) <= {-1, 0, 1}:
            raise BazaarError("monotone has 1, -1 or 0 for each feature")

    def signs(self, categorical: NDArray[np.bool_]) -> NDArray[np.float64] | None:
        """1, −1 or 0 for each feature; None where no feature is monotone."""
        if not any(self.monotone):
            return None
        signs = np.array(self.monotone, dtype=np.float64)
        if len(signs) != len(categorical):
            raise BazaarError(f"monotone has {len(signs)} numbers for {len(categorical)} features: give one of each")
        if signs[categorical].any():
            raise BazaarError("a category cannot be monotone: its codes have no order")
        return signs
