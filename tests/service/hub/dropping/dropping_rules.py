"""What somebody outside of databazaar writes: an aggregator that is as random as a model with dropout.

It seeds torch's one random state and draws from it, so that jobs in threads of one process would disturb each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch


@dataclass(frozen=True)
class Dropping:
    """The mean of the updates, without half of its numbers. The state counts rounds."""

    kind: ClassVar[str] = "dropping"

    def init(self, params: torch.Tensor) -> torch.Tensor:
        return params.new_zeros(1)

    def combine(self, state: torch.Tensor, updates: torch.Tensor, step: float) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(int(state.item()))
        chances = torch.stack([torch.rand(updates.shape[1]) for _ in range(50)])
        return state + 1, step * updates.mean(0) * (chances.mean(0) > 0.5)
