"""The paper's way to combine updates: their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.aggregators.protocol import Stateless

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mean(Stateless):
    """The mean over the valid draws: Algorithm 1, line 10.

    Departures from the paper: a reply that failed is left out, so the mean is over m ≤ K draws.
    """

    kind: ClassVar[str] = "mean"

    def combine(self, state: Tensor, updates: Tensor, step: float) -> tuple[Tensor, Tensor]:
        return state, (step / len(updates)) * updates.sum(0)
