"""Vectors of any length as a few hundred numbers, with the same inner products up to a small error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from databazaar.learning.models import LARGE
from databazaar.randomness import stream

SIZE = 256
"""The numbers of a sketch. Shorter vectors are their own."""
PIECE = 2**12 * SIZE
"""Large models' vectors are sketched so many numbers at a time: no second copy of one is made."""


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
        if len(params) > LARGE:
            return cls(_signs_in_pieces(len(params), params.device))
        signs = stream(0, 0, "sketch").integers(0, 2, rows * SIZE) * 2 - 1
        signs[len(params) :] = 0
        return cls(torch.from_numpy(signs).to(params))

    def __call__(self, vectors: Tensor) -> Tensor:
        """[m, d] → [m, min(d, SIZE)], on the CPU."""
        if self.signs is None:
            return vectors.double().cpu()
        if vectors.shape[1] > LARGE:
            return torch.stack([self._in_pieces(vector) for vector in vectors])
        padded = torch.nn.functional.pad(vectors, (0, len(self.signs) - vectors.shape[1]))
        return (padded * self.signs).view(len(vectors), -1, SIZE).sum(1).double().cpu()

    def _in_pieces(self, vector: Tensor) -> Tensor:
        assert self.signs is not None
        found = torch.zeros(SIZE, dtype=torch.float64)
        for numbers, signs in zip(torch.split(vector, PIECE), torch.split(self.signs, PIECE), strict=True):
            signed = torch.nn.functional.pad(numbers.to(signs.device) * signs, (0, -len(numbers) % SIZE))
            found += signed.view(-1, SIZE).sum(0).double().cpu()
        return found


def _signs_in_pieces(width: int, device: torch.device) -> Tensor:
    """The same signs, a byte each."""
    drawn, signs = stream(0, 0, "sketch"), torch.empty(width, dtype=torch.int8)
    for piece in torch.split(signs, PIECE):
        piece[:] = torch.from_numpy(drawn.integers(0, 2, len(piece)) * 2 - 1)
    return signs.to(device)
