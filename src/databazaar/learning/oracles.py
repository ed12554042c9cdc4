"""Oracles: w → update, over a provider's own data. Three built-in ones, and any callable on NumPy vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.learning.kinds import OptimizerKind, OracleKind
from databazaar.learning.models import caller
from databazaar.learning.optimizers import Descent, refuse_unfit
from databazaar.learning.seeding import seeded
from databazaar.learning.task import Schedule, Task, step_at
from databazaar.learning.travelling import StayingBuffers
from databazaar.randomness import sample_order

Batches = NDArray[np.int64]
"""Which samples each step uses: [steps, batch size], a short batch filled up with −1."""

CallableOracle = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class FullGradient:
    """The negative gradient of the mean loss over all the provider's samples."""

    def batches(self, samples: int, key: int) -> Batches:
        return np.arange(samples)[None]


@dataclass(frozen=True)
class StochasticGradient:
    """The negative gradient of the mean loss over one random batch."""

    batch_size: int = 32

    def __post_init__(self) -> None:
        _positive(batch_size=self.batch_size)

    def batches(self, samples: int, key: int) -> Batches:
        return sample_order(key, samples, first=self.batch_size)[None]


@dataclass(frozen=True)
class LocalSGD:
    """w⁺ − w after some mini-batches, which go through the samples in a new random order every epoch.

    An ask is over after `epochs` or after `steps` mini-batches, whichever comes first; so a provider with millions of
    samples works no longer than one with a few thousand. `steps=None` asks for whole epochs. `step` is the learning
    rate, a number or a schedule of the round. `optimizer` is "sgd", with `momentum` and `weight_decay` as
    torch.optim.SGD has them (the decay is part of the gradient), or "adam", which is torch.optim.AdamW (the decay is
    apart from it) and begins afresh with every ask.

    >>> LocalSGD(batch_size=2, steps=3).batches(100, key=1).shape
    (3, 2)
    """

    step: float | Schedule = 0.1
    batch_size: int = 32
    epochs: int = 1
    momentum: float = 0.0
    steps: int | None = 64
    optimizer: OptimizerKind = "sgd"
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _positive(batch_size=self.batch_size, epochs=self.epochs)
        if self.steps is not None:
            _positive(steps=self.steps)
        if not callable(self.step):
            _positive(step=self.step)
        refuse_unfit(self.optimizer, self.momentum, self.weight_decay)

    @property
    def is_plain(self) -> bool:
        """Whether every step is linear in the gradients so far, as with SGD that does not decay."""
        return self.optimizer == "sgd" and not self.weight_decay

    def descent(self) -> Descent:
        """What moves the parameters of one ask."""
        return Descent(self.optimizer, self.momentum, self.weight_decay)

    def step_count(self, samples: int) -> int:
        """The mini-batches of an ask to a provider with so many samples."""
        all_epochs = self.epochs * -(-samples // self.batch_size)
        return all_epochs if self.steps is None else min(self.steps, all_epochs)

    def batches(self, samples: int, key: int) -> Batches:
        steps, an_epoch = self.step_count(samples), -(-samples // self.batch_size)
        batches = np.full((steps, self.batch_size), -1, dtype=np.int64)
        for epoch, begin in enumerate(range(0, steps, an_epoch)):
            rows = batches[begin : begin + an_epoch].reshape(-1)
            order = sample_order(key, samples, epoch, first=min(samples, len(rows)))
            rows[: len(order)] = order
        return batches


Oracle = FullGradient | StochasticGradient | LocalSGD


def build_oracle(
    kind: OracleKind,
    step: float | Schedule = 0.1,
    batch_size: int = 32,
    epochs: int = 1,
    momentum: float = 0.0,
    steps: int | None = 64,
    optimizer: OptimizerKind = "sgd",
    weight_decay: float = 0.0,
) -> Oracle:
    """A built-in oracle by name, with the settings that it has a use for.

    >>> build_oracle("stochastic-gradient", batch_size=5)
    StochasticGradient(batch_size=5)
    """
    if kind == "full-gradient":
        return FullGradient()
    if kind == "stochastic-gradient":
        return StochasticGradient(batch_size)
    return LocalSGD(step, batch_size, epochs, momentum, steps, optimizer, weight_decay)


def _positive(**settings: float) -> None:
    for name, value in settings.items():
        if not value > 0:
            raise BazaarError(f"{name} = {value} must be positive")


def compute_update(
    oracle: Oracle,
    task: Task,
    data: Examples,
    params: Tensor,
    round: int,
    key: int,
) -> Tensor:
    """One provider's update, step by step: the reference that every faster way is tested against.

    `key` (`randomness.oracle_key`) is all its randomness.
    """
    layout = task.layout
    assert task.model is not None
    moving = params.detach().clone()
    w = layout.unflatten(moving)
    trainable = layout.names[: layout.trainable]
    moved = {name: w[name] for name in trainable}
    rate = step_at(oracle.step, round) if isinstance(oracle, LocalSGD) else 1.0
    descend = oracle.descent() if isinstance(oracle, LocalSGD) else Descent()
    x, y = data
    run = caller(task.model.train())
    counters = {n: b.clone() for n, b in task.model.named_buffers() if not b.is_floating_point()}  # of this ask alone
    staying = StayingBuffers(task.model)
    batches = oracle.batches(len(x), key)
    with seeded(key):  # a model with dropout draws from the provider's own key
        for batch in batches:
            rows = torch.from_numpy(batch[batch >= 0]).to(x.device)
            leaves = {name: w[name].detach().requires_grad_() for name in trainable}
            with task.autocast(x.device):
                outputs = run({**counters, **w, **leaves}, x[rows])
            loss = task.loss(outputs.to(params.dtype), y[rows]).mean()
            gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
            descend(moved, gradients, rate)
            del gradients, loss, outputs, leaves  # not held while the next ones are made
    staying.refuse_change()
    return moving.sub_(params)
