"""Stacks: many providers' work as one computation, in which row r trains its own copy of the model on its own data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import vmap

from databazaar.engines.plain_layers import PlainLayers
from databazaar.learning.models import LARGE, caller, split_fixed_prefix
from databazaar.learning.oracles import Descent, Oracle
from databazaar.learning.task import Task


@dataclass(frozen=True)
class Data:
    """All providers' samples end to end. Provider i has rows starts[i] … starts[i] + sizes[i] − 1."""

    x: Tensor
    y: Tensor
    starts: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class Workload:
    """What is to be stacked: a task with a torch model, and all providers' samples, both on the engine's device."""

    task: Task
    data: Data

    @cached_property
    def without_prefix(self) -> Workload:
        """The same without the model's first layers that have no parameters: the samples have passed them."""
        assert self.task.model is not None
        model, x = split_fixed_prefix(self.task.model, self.data.x)
        return Workload(replace(self.task, model=model), replace(self.data, x=x))


@dataclass(frozen=True)
class BatchPlan:
    """What each of R rows does in each of S steps, with providers of unequal sizes padded to one shape.

    `weights` makes Σ weights·loss the mean over the batch; it is 0 on padding. `steps` is the row's step size,
    0 where the row has nothing left to do.
    """

    providers: Tensor  # [R]
    local: Tensor  # [R, S, b] sample within the provider
    weights: Tensor  # [R, S, b]
    steps: Tensor  # [R, S]

    @property
    def first_step(self) -> BatchPlan:
        """The plan cut off after one step."""
        return BatchPlan(self.providers, self.local[:, :1], self.weights[:, :1], self.steps[:, :1])


class Stack(ABC):
    """Computes R updates at once, for providers that share an oracle."""

    kind: ClassVar[str]
    floats_per_sample: int
    """Floats of one sample as this stack reads it, to size the chunks by."""

    @classmethod
    @abstractmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> Stack | None:
        """The stack for that oracle, where it suits. `shape`: most steps of a row, and samples in each."""

    def floats(self, samples: int) -> int:
        """Floats that a row of so many samples takes beside its parameters."""
        return samples * self.floats_per_sample

    @abstractmethod
    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        """Updates [R, d] from parameters [R, d]. No look at a tensor's value, so that a CUDA graph can hold it."""


class StackedOracle(Stack):
    """Any oracle and any model that torch.func can map over: one vmapped forward pass per step.

    Rows do not touch each other, so the gradient of the rows' summed loss holds every row's own gradient. Where all
    layers are plain, the gradients are written out by hand instead (engines/plain_layers.py). The engine gives the rows
    of a large model one at a time, and these are computed without vmap.
    """

    kind = "stacked"

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> StackedOracle:
        return cls(work.without_prefix.task, oracle, work.without_prefix.data)

    def __init__(self, task: Task, oracle: Oracle, data: Data) -> None:
        assert task.model is not None
        self._layout = layout = task.layout
        self._oracle = oracle
        self._data = data
        self.floats_per_sample = data.x[0].numel()
        run = caller(task.model.train())

        def loss(w: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            with task.autocast(x.device):
                outputs = run({**w, **fixed}, x)
            return (weight * task.loss(outputs.to(weight.dtype), y)).sum()

        def only_row(w: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            first, other = ({name: value[0] for name, value in named.items()} for named in (w, fixed))
            return loss(first, other, x[0], y[0], weight[0])

        self._losses = only_row if layout.width > LARGE else vmap(loss, randomness="error")
        self._trainable = layout.names[: layout.trainable]
        by_hand = data.x.dim() == 2 and isinstance(task.model, nn.Sequential) and task.precision == "float32"
        plain = by_hand and PlainLayers.fit(task.model, task.loss)
        self._plain = PlainLayers(task.model, task.loss) if plain else None  # type: ignore[arg-type]

    def _gradients(
        self, w: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor
    ) -> Sequence[Tensor]:
        if self._plain is not None:
            return self._plain.gradients(x, w, self._plain.targets(y, x), weights, to_input=False)[1]
        leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
        losses = self._losses(leaves, fixed, x, y, weights)
        return torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        descend = Descent.of(self._oracle)
        data = self._data
        moving = params.detach().clone()
        everything = self._layout.unflatten(moving)
        w = {name: everything[name] for name in self._trainable}
        fixed = {name: view for name, view in everything.items() if name not in w}
        samples = data.starts[plan.providers][:, None, None] + plan.local
        for s in range(samples.shape[1]):
            rows = samples[:, s]
            gradients = self._gradients(w, fixed, data.x[rows], data.y[rows], plan.weights[:, s])
            descend(w, gradients, plan.steps[:, s])
            del gradients  # not held while the next ones are made
        return moving.sub_(params)
