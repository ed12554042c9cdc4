"""Vectors of any length as a few hundred numbers, with the same inner products up to a small error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from databazaar.randomness import stream

SIZE = 256
"""The numbers of a sketch. Shorter vectors are their own."""


@dataclass(frozen=True, eq=False)
class Sketch:
    r"""A linear map to `SIZE` numbers: number k is the sum of the entries k, k + SIZE, …, each with a random sign.

    With signs ε, ⟨Sx, Sy⟩ = Σ ε_i ε_j x_i y_j over i ≡ j, so its mean is ⟨x, y⟩ and its variance is at most
    2 ‖x‖² ‖y‖² / SIZE (the count sketch of Charikar, Chen and Farach-Colton, 2002, with buckets in turn). The signs are
    the same for all rounds and providers.
    """

    signs: Tensor | None

    @classmethod
    def of(cls, params: Tensor) -> Sketch:
        if len(params) <= SIZE:
            return cls(None)
        rows = -(-len(params) // SIZE)
        signs = stream(0, 0, "sketch").integers(0, 2, rows * SIZE) * 2 - 1
        signs[len(params) :] = 0
        return cls(torch.from_numpy(signs).to(params))

    def __call__(self, vectors: Tensor) -> Tensor:
        """[m, d] → [m, min(d, SIZE)], on the CPU."""
        if self.signs is None:
            return vectors.double().cpu()
        padded = torch.nn.functional.pad(vectors, (0, len(self.signs) - vectors.shape[1]))
        return (padded * self.signs).view(len(vectors), -1, SIZE).sum(1).double().cpu()
