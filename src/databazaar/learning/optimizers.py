"""How a gradient becomes a step: SGD and Adam as torch.optim has them, for one model or for a stack of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from databazaar.oracles import LocalSGD, Oracle
from databazaar.oracles.protocol import OptimizerKind

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's settings, as torch.optim.Adam has them."""
PIECE = 2**18
"""Larger tensors are moved so many numbers at a time on a CPU, whose memory is the shorter."""


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
