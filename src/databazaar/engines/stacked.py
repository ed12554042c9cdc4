"""The stack for any oracle: one vmapped pass of all rows per step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import vmap

from databazaar.engines.plain_layers import PlainLayers
from databazaar.engines.stacks import BatchPlan, Data, Stack, Workload
from databazaar.learning.models import caller
from databazaar.learning.optimizers import Descent
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task


class StackedOracle(Stack):
    """Any oracle and any model that torch.func can map over: one vmapped forward pass per step.

    Rows do not touch each other, so the gradient of the rows' summed loss holds every row's own gradient. Where all
    layers are plain, the gradients are written out by hand instead (engines/plain_layers.py).
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

        self._losses = vmap(loss, randomness="error")
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
