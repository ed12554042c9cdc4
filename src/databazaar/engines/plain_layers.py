"""Gradients written out by hand for the plainest stacked networks: linear layers, ReLU and tanh, three losses.

A step of local SGD on a small batch is a dozen tiny products. Autograd and vmap around them cost several times more
than the products themselves, so where every layer is one of these, the chain rule is applied here directly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from databazaar.learning.losses import Loss, binary_cross_entropy, cross_entropy, squared_error

Slope = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Outputs [R, b, …], targets [R, b, …] and weights [R, b] → ∂ Σ weight·loss / ∂ outputs. A class is a 1 among zeros:
[R, b, C]."""


def _cross_entropy_slope(outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return outputs.softmax(-1).sub_(targets).mul_(weights[..., None])


def _squared_error_slope(outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    errors = (outputs.reshape(targets.shape) - targets) * weights.view(*weights.shape, *[1] * (targets.dim() - 2))
    return errors.reshape(outputs.shape)


def _binary_slope(outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    errors = (outputs.reshape(targets.shape).sigmoid() - targets) * weights
    return errors.reshape(outputs.shape)


SLOPES: dict[Loss, Slope] = {
    cross_entropy: _cross_entropy_slope,
    binary_cross_entropy: _binary_slope,
    squared_error: _squared_error_slope,
}


class PlainLayers:
    """Loss gradients of R networks at once, with respect to their input and their parameters."""

    def __init__(self, layers: nn.Sequential, loss: Loss) -> None:
        self._layers = [(name, layer) for name, layer in layers._modules.items() if layer is not None]
        self._slope = SLOPES[loss]

    @staticmethod
    def fit(layers: nn.Module, loss: Loss) -> bool:
        """Whether all of it is plain and trained, and no layer or parameter stands at two places."""
        if type(layers) is not nn.Sequential or not all(p.requires_grad for p in layers.parameters()):
            return False
        parts = list(layers._modules.values())
        known = all(type(part) in (nn.Linear, nn.ReLU, nn.Tanh) for part in parts)
        used = [id(p) for part in parts if isinstance(part, nn.Linear) for p in part.parameters()]
        return known and len(used) == len(set(used)) and loss in SLOPES

    def targets(self, y: Tensor, z: Tensor) -> Tensor:
        """The targets as `gradients` takes them; `z` are inputs like those that it is given. Made once for all steps:
        they cost as much as what a step does with them."""
        if self._slope is not _cross_entropy_slope:
            return y
        widths = [layer.out_features for _, layer in self._layers if isinstance(layer, nn.Linear)]
        return (y[..., None] == torch.arange([z.shape[-1], *widths][-1], device=z.device)).to(z.dtype)

    def gradients(
        self, z: Tensor, w: dict[str, Tensor], targets: Tensor, weights: Tensor, *, to_input: bool = True
    ) -> tuple[Tensor, list[Tensor]]:
        """∂/∂z (not worked out where it is not wanted), and the gradients in the order of `w`."""
        passed = [z]
        for name, layer in self._layers:
            h = passed[-1]
            if type(layer) is nn.Linear:
                weight, bias = w[f"{name}.weight"], w.get(f"{name}.bias")
                h = torch.bmm(h, weight.mT) if bias is None else torch.baddbmm(bias[:, None], h, weight.mT)
            else:
                h = torch.relu(h) if type(layer) is nn.ReLU else torch.tanh(h)
            passed.append(h)
        slope = self._slope(passed[-1], targets, weights)
        found: dict[str, Tensor] = {}
        for place in reversed(range(len(self._layers))):
            (name, layer), h = self._layers[place], passed[place]
            if type(layer) is nn.Linear:
                found[f"{name}.weight"] = torch.bmm(slope.mT, h)
                found[f"{name}.bias"] = slope.sum(1)
                if to_input or h is not z:
                    slope = torch.bmm(slope, w[f"{name}.weight"])
            elif type(layer) is nn.ReLU:
                # sign() is h > 0 as numbers: a product with truth values takes three times as long
                slope = slope * passed[place + 1].sign()
            else:
                slope = slope * (1 - torch.tanh(h) ** 2)
        return slope, [found[name] for name in w]
