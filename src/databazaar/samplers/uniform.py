"""The baseline: everybody is asked equally often, whatever they bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.samplers.protocol import Draws, Vector, refuse_non_finite, refuse_too_many, register


@register
@dataclass(frozen=True)
class Uniform:
    """Draws providers with equal chances, with or without replacement. The state never changes.

    >>> sampler = Uniform(replacement=False)
    >>> sorted(sampler.draw(sampler.init(3), np.random.default_rng(0), 3).tolist())
    [0, 1, 2]
    """

    replacement: bool = True
    kind: ClassVar[str] = "uniform"

    def init(self, providers: int) -> Vector:
        return np.full(providers, 1.0 / providers)

    def probabilities(self, state: Vector) -> Vector:
        return state

    def draw(self, state: Vector, rng: np.random.Generator, size: int) -> Draws:
        n = len(state)
        if self.replacement:
            return np.minimum((rng.random(size) * n).astype(np.int64), n - 1)
        refuse_too_many(size, n)
        return np.argsort(rng.random(n), kind="stable")[:size].astype(np.int64)

    def update(self, state: Vector, draws: Draws, gains: Vector) -> Vector:
        refuse_non_finite(gains)
        return state
