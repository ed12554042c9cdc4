"""Many providers' work as one stacked computation: row r trains its own copy of the model on its own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import vmap

from databazaar.engines.plain_layers import PlainLayers
from databazaar.learning.models import caller
from databazaar.learning.oracles import LocalSGD, Oracle
from databazaar.learning.task import Task


@dataclass(frozen=True)
class Data:
    """All providers' samples end to end. Provider i has rows starts[i] … starts[i] + sizes[i] − 1."""

    x: Tensor
    y: Tensor
    starts: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class Plan:
    """What each of R rows does in each of S steps, with providers of unequal sizes padded to one shape.

    `weights` makes Σ weights·loss the mean over the batch; it is 0 on padding. `steps` is the row's step size,
    0 where the row has nothing left to do.
    """

    providers: Tensor  # [R]
    local: Tensor  # [R, S, b] sample within the provider
    weights: Tensor  # [R, S, b]
    steps: Tensor  # [R, S]

    @property
    def first_step(self) -> Plan:
        """The plan cut off after one step."""
        return Plan(self.providers, self.local[:, :1], self.weights[:, :1], self.steps[:, :1])


class Stack(Protocol):
    """Computes R updates at once. Pure tensor code: no look at a value, so that a CUDA graph can hold it."""

    def __call__(self, params: Tensor, plan: Plan) -> Tensor:
        """Updates [R, d] from parameters [R, d]."""


class StackedOracle:
    """Any oracle and any model that torch.func can map over: one vmapped forward pass per step.

    Rows do not touch each other, so the gradient of the rows' summed loss holds every row's own gradient. Where all
    layers are plain, the gradients are written out by hand instead (engines/plain_layers.py).
    """

    def __init__(self, task: Task, oracle: Oracle, data: Data) -> None:
        assert task.model is not None
        self._layout = layout = task.layout
        self._oracle = oracle
        self._data = data
        run = caller(task.model.train())

        def loss(w: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return (weight * task.loss(run({**w, **fixed}, x), y)).sum()

        self._losses = vmap(loss, randomness="error")
        self._trainable = layout.names[: layout.trainable]
        plain = data.x.dim() == 2 and isinstance(task.model, nn.Sequential) and PlainLayers.fit(task.model, task.loss)
        self._plain = PlainLayers(task.model, task.loss) if plain else None  # type: ignore[arg-type]

    def _gradients(
        self, w: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, y: Tensor, weights: Tensor
    ) -> Sequence[Tensor]:
        if self._plain is not None:
            return self._plain.gradients(x, w, y, weights, to_input=False)[1]
        leaves = {name: value.detach().requires_grad_() for name, value in w.items()}
        losses = self._losses(leaves, fixed, x, y, weights)
        return torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True)

    def __call__(self, params: Tensor, plan: Plan) -> Tensor:
        momentum = self._oracle.momentum if isinstance(self._oracle, LocalSGD) else 0.0
        data = self._data
        moving = params.detach().clone()
        everything = self._layout.unflatten(moving)
        w = {name: everything[name] for name in self._trainable}
        fixed = {name: view for name, view in everything.items() if name not in w}
        samples = data.starts[plan.providers][:, None, None] + plan.local
        velocity: dict[str, Tensor] = {}
        for s in range(samples.shape[1]):
            rows = samples[:, s]
            gradients = self._gradients(w, fixed, data.x[rows], data.y[rows], plan.weights[:, s])
            descend(w, gradients, velocity, momentum, plan.steps[:, s])
        return moving.sub_(params)


@torch.no_grad()
def descend(
    w: dict[str, Tensor], gradients: Sequence[Tensor], velocity: dict[str, Tensor], momentum: float, steps: Tensor
) -> None:
    """v ← μv + ∇ and w ← w − step·v, in place, with each row's own step."""
    for (name, value), gradient in zip(w.items(), gradients, strict=True):
        if momentum and name in velocity:
            gradient = torch.add(gradient, velocity[name], alpha=momentum, out=velocity[name])
        elif momentum:
            velocity[name] = gradient.clone(memory_format=torch.contiguous_format)  # autograd may hand out one twice
        value.addcmul_(gradient, steps.view(-1, *[1] * (value.dim() - 1)), value=-1.0)
