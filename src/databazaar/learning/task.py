"""What a provider may see of the consumer: the model's form and the loss. Never the hold-out or the utility."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError
from databazaar.learning.losses import Loss
from databazaar.learning.models import Layout

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Halving:
    """A step size that halves every so many rounds: at t + 1 = every, 2·every, …

    >>> [Halving(1.0, every=2)(t) for t in range(5)]
    [1.0, 0.5, 0.5, 0.25, 0.25]
    """

    step: float
    every: int

    def __call__(self, round: int) -> float:
        return float(self.step * 0.5 ** ((round + 1) // self.every))


@dataclass(frozen=True)
class Cosine:
    """A step size that falls along half a cosine to `floor` times itself in round `rounds`, and stays there.

    >>> [round(Cosine(1.0, rounds=4)(t), 3) for t in (0, 2, 4, 9)]
    [1.0, 0.505, 0.01, 0.01]
    """

    step: float
    rounds: int
    floor: float = 0.01

    def __call__(self, round: int) -> float:
        share = min(round / self.rounds, 1.0)
        return float(self.step * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2))


def step_at(step: float | Schedule, round: int) -> float:
    return float(step(round)) if callable(step) else float(step)


@dataclass(frozen=True)
class Task:
    """Model and loss. Without a model, the parameters are a plain vector that only callables understand."""

    model: nn.Module | None
    loss: Loss

    @property
    def layout(self) -> Layout:
        if self.model is None:
            raise BazaarError("this oracle needs a torch model, and the consumer brought a plain vector")
        return Layout.of(self.model)

    @property
    def optional_layout(self) -> Layout | None:
        return None if self.model is None else self.layout


def as_dataset(data: tuple[Any, Any], owner: str) -> tuple[Tensor, Tensor]:
    """(x, y) as tensors: x in float32; y in int64 where it holds integers (classes), else in float32."""
    x, y = (_as_tensor(part, owner) for part in data)
    x = x.to(torch.float32)
    y = y.to(torch.float32) if y.is_floating_point() else y.to(torch.int64)
    if len(x) == 0 or len(x) != len(y):
        raise BazaarError(
            f"{owner}: {len(x)} rows of features and {len(y)} targets: give one of each per row, and at least one"
        )
    if not (torch.isfinite(x).all() and (not y.is_floating_point() or torch.isfinite(y).all())):
        raise BazaarError(f"{owner}: the data hold NaN or infinity: remove or replace those rows")
    return x, y


def _as_tensor(part: Any, owner: str) -> Tensor:
    if isinstance(part, Tensor):
        return part.detach()
    try:
        return torch.from_numpy(np.array(part))
    except (TypeError, ValueError) as reason:
        raise BazaarError(f"{owner}: the data are not numbers in rows ({reason}): convert them first") from None
