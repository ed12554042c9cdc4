"""What an oracle comes to: w → update, over a provider's own data. Or any callable on NumPy vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.learning.inputs import Examples
from databazaar.learning.models import caller
from databazaar.learning.parameter_exchange import StayingBuffers
from databazaar.learning.task import Task, step_at
from databazaar.learning.torch_state import seeded
from databazaar.oracles import FullGradient, LocalSGD, OptimizerKind, Oracle, StochasticGradient, build_oracle

__all__ = [
    "CallableOracle",
    "Descent",
    "FullGradient",
    "LocalSGD",
    "Oracle",
    "StochasticGradient",
    "build_oracle",
    "compute_update",
]

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's settings, as torch.optim.Adam has them."""
PIECE = 2**18
"""Larger tensors are moved so many numbers at a time on a CPU, whose memory is the shorter."""
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


class Descent:
    """Moves parameters step by step, in place, and remembers what the next step needs.

    `sgd` is torch.optim.SGD: weight decay λ is added to the gradient (∇ + λw), then v ← μv + ∇, w ← w − rate·v.
    `adam` is torch.optim.AdamW, which without weight decay is Adam: the decay is apart from the gradient,
    w ← w − rate·λw. With a stack of R models, a rate for each: [R].
    """

    def __init__(self, optimizer: OptimizerKind = "sgd", momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self._adam = optimizer == "adam"
        self._momentum, self._decay = momentum, weight_decay
        self._first: dict[str, Tensor] = {}
        self._second: dict[str, Tensor] = {}
        self._steps = 0

    @classmethod
    def of(cls, oracle: Oracle) -> Descent:
        """What moves the parameters of one ask."""
        return cls(oracle.optimizer, oracle.momentum, oracle.weight_decay) if isinstance(oracle, LocalSGD) else cls()

    @torch.no_grad()
    def __call__(self, w: dict[str, Tensor], gradients: Sequence[Tensor], rate: float | Tensor) -> None:
        self._steps += 1
        for (name, value), gradient in zip(w.items(), gradients, strict=True):
            rates = rate.view(-1, *[1] * (value.dim() - 1)) if isinstance(rate, Tensor) else rate
            if self._adam:
                self._move(value, self._adams_way(name, value, gradient, rates), rates)
            else:
                self._move(value, self._velocity(name, value, gradient), rates)

    @staticmethod
    def _move(value: Tensor, way: Tensor, rates: float | Tensor) -> None:
        if isinstance(rates, Tensor):
            value.addcmul_(way, rates, value=-1.0)
        elif value.numel() <= PIECE or value.device.type != "cpu":
            value.sub_(rates * way)
        else:  # the same numbers without a second copy of the gradient
            rows = max(1, PIECE * len(value) // value.numel())
            for part, way_part in zip(torch.split(value, rows), torch.split(way, rows), strict=True):
                part.sub_(rates * way_part)

    def _velocity(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        if self._decay:
            gradient = gradient.add(value, alpha=self._decay)
        if not self._momentum:
            return gradient
        if name in self._first:
            return torch.add(gradient, self._first[name], alpha=self._momentum, out=self._first[name])
        self._first[name] = gradient.clone(memory_format=torch.contiguous_format)  # autograd may hand out one twice
        return self._first[name]

    def _adams_way(self, name: str, value: Tensor, gradient: Tensor, rates: float | Tensor) -> Tensor:
        if self._decay:
            value.mul_(1 - rates * self._decay)
        if name not in self._first:
            self._first[name], self._second[name] = torch.zeros_like(value), torch.zeros_like(value)
        (one, two), steps = BETAS, self._steps
        mean = self._first[name].lerp_(gradient, 1 - one)
        square = self._second[name].mul_(two).addcmul_(gradient, gradient, value=1 - two)
        spread = square.sqrt().div_((1 - two**steps) ** 0.5).add_(EPSILON)
        return spread.reciprocal_().mul_(mean).div_(1 - one**steps)
