"""Scoring many models that differ by a few known updates: w + Σ_i c_i g_i for many rows of coefficients c.

`PlainScorer` forms every model and scores it. `PrefixScorer` uses that a first linear layer is linear in its weights,
X(W + Σ c_i ΔW_i)ᵀ = XWᵀ + Σ c_i XΔW_iᵀ: each product with the hold-out is done once, and a model's first layer costs
one combination of them. The layers above are evaluated as they are. Both give the same utilities to float tolerance.
"""

from __future__ import annotations

import copy
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from databazaar.consumer import Consumer
from databazaar.engines.dual import split_first_linear
from databazaar.models import caller
from databazaar.utilities import Evaluator

CHUNK_FLOATS = 2**21
"""First-layer activations of one batch: about what stays near the processor (8 MiB); more on a GPU."""

KEPT_FLOATS = 2**28
"""Activations of all updates of a round are kept only under this many floats (1 GiB)."""


class Scorer(Protocol):
    """Utilities [m] of the models w + Σ_i c_i g_i for coefficients [m, K]."""

    def __call__(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """One utility per row."""


class PlainScorer:
    """Forms every model: right for any model and any utility."""

    def __init__(self, evaluator: Evaluator, params: Tensor, updates: Tensor) -> None:
        self._evaluator = evaluator
        self._params = params
        self._updates = updates

    def __call__(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        weights = torch.from_numpy(coefficients).to(self._updates)
        size = max(1, 2**26 // len(self._params))
        parts = [
            self._evaluator.score(torch.addmm(self._params, part, self._updates)).utility
            for part in torch.split(weights, size)
        ]
        return np.concatenate(parts)


class FirstLayer:
    """A model that begins with a linear layer, and the hold-out that it is judged on. Kept over rounds."""

    @classmethod
    def of(cls, consumer: Consumer, evaluator: Evaluator) -> FirstLayer | None:
        """None where the model or the utility is of another kind."""
        model = evaluator.module
        if model is None or callable(consumer.utility) or split_first_linear(model) is None:
            return None
        return cls(consumer, evaluator)

    def __init__(self, consumer: Consumer, evaluator: Evaluator) -> None:
        model = copy.deepcopy(evaluator.module)
        assert model is not None
        split = split_first_linear(model)
        assert split is not None
        self.layout = consumer.task.layout
        self.name, _, above = split
        self.x, self.y = evaluator.holdout
        self.evaluator = evaluator
        own = [name for name in self.layout.names if not name.startswith(f"{self.name}.")]
        self.above = dict(zip(own, dict(above.named_parameters()), strict=True))
        module = above.to(self.x.device).eval()
        if len(module) and type(module[0]) is nn.ReLU:
            module[0].inplace = True  # its input is made here and used by nobody else
        self.outputs = vmap(caller(module))

    def fits(self, updates: int) -> bool:
        """Whether the activations of that many updates can be kept."""
        width = dict(zip(self.layout.names, self.layout.shapes, strict=True))[f"{self.name}.weight"][0]
        return (updates + 1) * self.x.shape[:-1].numel() * width <= KEPT_FLOATS

    def activations(self, stack: Tensor) -> Tensor:
        """xWᵀ + b for stacked parameters or updates [m, d], which it is linear in: [m, samples · width]."""
        named = self.layout.unflatten(stack)
        first = torch.matmul(self.x.flatten(0, -2), named[f"{self.name}.weight"].mT)
        bias = named.get(f"{self.name}.bias")
        return (first if bias is None else first.add_(bias[:, None, :])).flatten(1)

    def rest(self, stack: Tensor) -> dict[str, Tensor]:
        """The layers above, by the names they have there."""
        named = self.layout.unflatten(stack)
        return {above: named[name] for name, above in self.above.items()}


class PrefixScorer:
    """Multiplies the hold-out with every update once, whatever the number of models."""

    @torch.no_grad()
    def __init__(self, layer: FirstLayer, params: Tensor, updates: Tensor) -> None:
        self._layer = layer
        self._moves = layer.activations(torch.cat([params[None], updates]))  # the first is the start itself
        self._rest = layer.rest(params)
        self._rest_moves = layer.rest(updates)

    @torch.no_grad()
    def __call__(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        layer, samples = self._layer, len(self._layer.x)
        weights = torch.from_numpy(np.pad(coefficients, ((0, 0), (1, 0)), constant_values=1.0)).to(self._moves)
        size = max(1, (CHUNK_FLOATS if weights.device.type == "cpu" else 2**28) // self._moves.shape[1])
        buffer = self._moves.new_empty(min(size, len(weights)), self._moves.shape[1])
        losses, hits = [], []
        for start in range(0, len(weights), size):
            rows = weights[start : start + size]
            part = rows[:, 1:]
            z = torch.mm(rows, self._moves, out=buffer[: len(rows)]).view(len(rows), *layer.x.shape[:-1], -1)
            w = {
                name: value + torch.tensordot(part, self._rest_moves[name], dims=1)
                for name, value in self._rest.items()
            }
            loss, hit = layer.evaluator.judge(layer.outputs(w, z), layer.y)
            losses.append(loss / samples)
            hits.append(hit / samples)
        return layer.evaluator.scores(torch.cat(losses).cpu().numpy(), torch.cat(hits).cpu().numpy()).utility
