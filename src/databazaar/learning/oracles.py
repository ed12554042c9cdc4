"""What an oracle comes to: w → update, over a provider's own data. Or any callable on NumPy vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.learning.inputs import Examples
from databazaar.learning.models import caller
from databazaar.learning.optimizers import Descent
from databazaar.learning.parameter_exchange import StayingBuffers
from databazaar.learning.seeds import seeded
from databazaar.learning.task import Task, step_at
from databazaar.oracles import FullGradient, LocalSGD, Oracle, StochasticGradient, build_oracle

__all__ = [
    "CallableOracle",
    "FullGradient",
    "LocalSGD",
    "Oracle",
    "StochasticGradient",
    "build_oracle",
    "compute_update",
]

CallableOracle = Callable[[NDArray[Any]], NDArray[Any]]


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
    descend = Descent.of(oracle)
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
