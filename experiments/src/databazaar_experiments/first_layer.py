"""Federated Shapley for models that begin with a wide linear layer, several times as fast.

A linear layer is linear in its weights, X(W + Σ c_i ΔW_i)ᵀ = XWᵀ + Σ c_i XΔW_iᵀ: each product with the hold-out is done
once a round, and a model's first layer costs one combination of them. The layers above are evaluated as they are. The
utilities are those of `databazaar_experiments.fed_shapley` to float tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from databazaar.learning.models import caller
from databazaar.learning.parameter_exchange import lean_copy
from databazaar.learning.utilities import Evaluator
from databazaar_experiments.fed_shapley import FedShapley, Scorer, Weights

CHUNK_FLOATS = 2**21
"""First-layer activations of one batch: about what stays near the processor (8 MiB)."""

DEVICE_FLOATS = 2**28
"""The same on a GPU (1 GiB)."""

KEPT_FLOATS = 2**28
"""Activations of all updates of a round are kept only under this many floats (1 GiB)."""


@dataclass(frozen=True, kw_only=True)
class FirstLayerFedShapley(FedShapley):
    """Federated Shapley whose models are scored by their first layer, where the model begins with a linear one."""

    def scorers(self, evaluator: Evaluator) -> Callable[[Tensor, Tensor], Scorer]:
        layer, plainly = FirstLayer.of(evaluator), super().scorers(evaluator)

        def scorer(params: Tensor, updates: Tensor) -> Scorer:
            if layer is None or not layer.fits(len(updates)):
                return plainly(params, updates)
            return PrefixScorer(layer, params, updates)

        return scorer


class FirstLayer:
    """A model that begins with a linear layer, and the hold-out that it is judged on. Kept over rounds."""

    @classmethod
    def of(cls, evaluator: Evaluator) -> FirstLayer | None:
        """None where the model or the utility is of another kind."""
        model = evaluator.module
        if model is None or not evaluator.judges_rows or split_first_linear(model) is None:
            return None
        return cls(evaluator)

    def __init__(self, evaluator: Evaluator) -> None:
        assert evaluator.module is not None
        model = lean_copy(evaluator.module)
        split = split_first_linear(model)
        assert split is not None
        self.layout = evaluator.layout
        self.name, _, above = split
        x, self.y = evaluator.holdout
        assert isinstance(x, Tensor)  # a model that begins with a linear layer takes nothing else
        self.x = x
        self.evaluator = evaluator
        own = [name for name in self.layout.names if not name.startswith(f"{self.name}.")]
        self.above = dict(zip(own, dict(above.named_parameters()), strict=True))
        module = above.to(self.x.device).eval()
        if len(module) and type(module[0]) is nn.ReLU:
            module[0].inplace = True  # its input is made here and used by nobody else
        self.outputs = vmap(caller(module)) if len(module) else lambda _, z: z
        outputs = dict(zip(self.layout.names, self.layout.shapes, strict=True))[f"{self.name}.weight"][0]
        samples = self.x.shape[:-1].numel()
        self.width = samples * outputs

    def fits(self, updates: int) -> bool:
        """Whether the activations of that many updates can be kept."""
        return (updates + 1) * self.width <= KEPT_FLOATS

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


class PrefixScorer(Scorer):
    """Multiplies the hold-out with every update once, whatever the number of models."""

    def __init__(self, layer: FirstLayer, params: Tensor, updates: Tensor) -> None:
        super().__init__(layer.evaluator, params, updates)
        self._layer = layer
        self._moves: Tensor | None = None

    @torch.no_grad()
    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        layer = self._layer
        if self._moves is None:
            self._moves = layer.activations(torch.cat([self._params[None], self._updates]))
        limit = CHUNK_FLOATS if layer.x.device.type == "cpu" else DEVICE_FLOATS
        size = min(len(coefficients), max(1, limit // layer.width))
        buffer = self._params.new_empty(size, layer.width)
        parts = [coefficients[start : start + size] for start in range(0, len(coefficients), size)]
        return np.concatenate([self._judge(part, self._moves, buffer) for part in parts])

    def _judge(self, coefficients: Weights, moves: Tensor, buffer: Tensor) -> NDArray[np.float64]:
        """The utilities [m] of these models. The buffer is for the first layer's activations."""
        layer, count = self._layer, len(coefficients)
        weights = torch.from_numpy(np.insert(coefficients, 0, 1.0, axis=1)).to(moves)  # of the start, then of updates
        z = torch.mm(weights, moves, out=buffer[:count]).view(count, *layer.x.shape[:-1], -1)
        starts, updates = layer.rest(self._params), layer.rest(self._updates)
        w = {
            name: torch.addmm(start.flatten(), weights[:, 1:], updates[name].flatten(1)).view(count, *start.shape)
            for name, start in starts.items()
        }
        return layer.evaluator.judge(layer.outputs(w, z)).utility


def split_first_linear(model: nn.Module) -> tuple[str, nn.Linear, nn.Sequential] | None:
    """The first layer's name, that layer, and what stands above it; None where it is not a plain linear layer."""
    if type(model) is not nn.Sequential or not len(model) or type(model[0]) is not nn.Linear:
        return None
    (name, first), *rest = model._modules.items()
    above = nn.Sequential(*(layer for _, layer in rest if layer is not None))
    shared = len(list(model.parameters())) != len(list(first.parameters())) + len(list(above.parameters()))
    assert isinstance(first, nn.Linear)
    frozen = not all(p.requires_grad for p in model.parameters())
    return None if shared or frozen or list(above.buffers()) else (name, first, above)
