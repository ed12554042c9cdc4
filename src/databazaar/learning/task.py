"""What a provider may see of the consumer: the model's form and the loss. Never the hold-out or the utility."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Inputs, NamedInputs
from databazaar.learning.losses import Loss, binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.models import Layout
from databazaar.learning.parameter_exchange import frozen_digest, lean_copy

Schedule = Callable[[int], float]
Precision = Literal["float32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


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
    """Model and loss. Without a model, the parameters are a plain vector that only callables understand.

    With `precision` "bf16", training runs under torch's autocast: products are made of numbers of 16 bits, while
    parameters, their updates and the loss stay float32. Scoring is in float32 always: it decides what is paid.
    """

    model: nn.Module | None
    loss: Loss
    precision: Precision = "float32"
    takes_missing: bool = False
    """Whether the model knows what to do with inputs that are NaN."""

    @property
    def layout(self) -> Layout:
        if self.model is None:
            raise BazaarError("this oracle needs a torch model, and the consumer brought a plain vector")
        return Layout.of(self.model)

    def inputs(self, x: Inputs) -> Inputs:
        """x as this model takes it. Whole numbers stay whole for a model with an embedding, else they become floats;
        named inputs stay as they are."""
        if isinstance(x, NamedInputs) or x.is_floating_point():
            return x
        embeds = self.model is not None and any(
            isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in self.model.modules()
        )
        return x if embeds else x.to(torch.float32)

    def targets(self, y: Tensor) -> Tensor:
        """y as this loss takes it: whole numbers to be predicted as numbers, and classes that were written as floats,
        where all of them are whole."""
        if self.loss is squared_error:
            return y.to(torch.float32)
        by_class = self.loss in (cross_entropy, binary_cross_entropy)
        if by_class and y.is_floating_point() and bool((y == y.round()).all()):
            classes = y.to(torch.int64)
            return classes[:, 0] if classes.dim() == 2 and classes.shape[1] == 1 else classes
        return y

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context of a training step. Its casts are not cached: each ask has parameters of its own."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    @property
    def frozen_digest(self) -> str:
        """The digest of what does not travel; "" where all of the model does."""
        return "" if self.model is None else frozen_digest(self.model, self.layout.names)

    def copied(self, *, writable: bool = False) -> Task:
        """The same for somebody else, on any device. Memory is shared with this one; unless `writable`, also that of
        what travels, which nobody reads from a module: it is handed in with every call."""
        if self.model is None:
            return self
        model = lean_copy(self.model, self.layout.names if writable else ())
        return replace(self, model=model, loss=copy.deepcopy(self.loss))

    @property
    def optional_layout(self) -> Layout | None:
        return None if self.model is None else self.layout
