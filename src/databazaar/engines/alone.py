"""The stack for large models on a GPU: one row after the other, each as one vector.

Side by side, copies of a large model would only take more memory. A CUDA graph holds all steps of an ask, and the
optimizer's part of a step is three passes over one vector instead of three for every tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from databazaar.engines.stacks import BatchPlan, Data, Stack, Workload
from databazaar.learning.models import LARGE, caller
from databazaar.learning.optimizers import Descent
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task


class Alone(Stack):
    """Any oracle and any model that draws no numbers of its own, row by row."""

    kind = "alone"
    together = 1

    @classmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> Alone | None:
        return cls(work.task, oracle, work.data) if work.task.layout.width > LARGE else None

    def __init__(self, task: Task, oracle: Oracle, data: Data) -> None:
        assert task.model is not None
        self._task, self._oracle, self._data = task, oracle, data
        self._layout = task.layout
        self._moved = sum(self._layout.sizes[: self._layout.trainable])
        self._run = caller(task.model.train())
        self.floats_per_sample = data.x[0].numel()

    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        samples = self._data.starts[plan.providers][:, None, None] + plan.local
        rows = zip(params, samples, plan.weights, plan.steps, strict=True)
        updates = [self._update(*row) for row in rows]
        return updates[0][None] if len(updates) == 1 else torch.stack(updates)

    def _update(self, start: Tensor, samples: Tensor, weights: Tensor, steps: Tensor) -> Tensor:
        descend = Descent.of(self._oracle)
        moving = start.detach().clone()
        trained = {"": moving[: self._moved]}
        for rows, weight, step in zip(samples, weights, steps, strict=True):
            descend(trained, [self._gradient(moving, rows, weight)], step)
        return moving.sub_(start)

    def _gradient(self, moving: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        """∂ Σ weight·loss / ∂ trained numbers: one vector, as autograd gathers it from its views."""
        leaf = moving[: self._moved].detach().requires_grad_()
        named = self._layout.unflatten(torch.cat([leaf, moving[self._moved :]]) if self._moved < len(moving) else leaf)
        x, y = self._data.x[rows], self._data.y[rows]
        with self._task.autocast(x.device):
            outputs = self._run(named, x)
        loss = (weights * self._task.loss(outputs.to(moving.dtype), y)).sum()
        return torch.autograd.grad(loss, leaf, materialize_grads=True)[0]
