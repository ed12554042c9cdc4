"""Models as one flat vector: the built-in ones, and how any torch module lies in a vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from databazaar.learning.inputs import Inputs, NamedInputs
from databazaar.learning.parameter_exchange import moving_buffers
from databazaar.learning.torch_state import seeded
from databazaar.models import CONV_SIDE, FILTER_SIDE, ModelForm, layer_sizes
from databazaar.vectors import hash_array


def build_model(
    kind: str,
    inputs: Sequence[int],
    outputs: int,
    *,
    hidden: Sequence[int] = (32,),
    seed: int = 0,
) -> nn.Module:
    """A built-in model by name, initialised from `seed` without touching torch's global generator.

    >>> sum(p.numel() for p in build_model("mlp", [784], 10, hidden=[300]).parameters())
    238510
    """
    sizes = layer_sizes(kind, inputs, outputs, hidden)
    with seeded(seed):
        first, *rest = _convolutions(sizes) if kind == "convnet" else [nn.Linear(*size) for size in sizes]
    if kind == "convnet":
        second, hidden_layer, last = rest
        pooled = (part for layer in (first, second) for part in (layer, nn.ReLU(), nn.MaxPool2d(2)))
        model = nn.Sequential(*pooled, nn.Flatten(), hidden_layer, nn.ReLU(), last)
    elif kind == "cnn":
        second, last = rest
        head = (StrongestPatch(), nn.Flatten(), second, nn.ReLU(), last)
        model = nn.Sequential(PooledPatches(FILTER_SIDE), first, *head)
    else:
        model = nn.Sequential(nn.Flatten(), first, *(part for layer in rest for part in (nn.ReLU(), layer)))
    vars(model)["form"] = ModelForm(kind, tuple(map(int, inputs)), int(outputs), tuple(hidden) if kind == "mlp" else ())
    return model


def _convolutions(sizes: Sequence[tuple[int, int]]) -> list[nn.Module]:
    """Two layers of filters that keep the sides of an image, and the layers after them."""
    patch, half = CONV_SIDE**2, CONV_SIDE // 2
    filters = [nn.Conv2d(into // patch, out, CONV_SIDE, padding=half) for into, out in sizes[:2]]
    return [*filters, *(nn.Linear(*size) for size in sizes[2:])]


def form_of(model: nn.Module | None) -> ModelForm | None:
    """What `build_model` made the model from; None for a model that it did not make, or that was altered since."""
    form = vars(model).get("form") if model is not None else None
    return form if isinstance(form, ModelForm) and repr(model) == repr(unfilled(form)) else None


def unfilled(form: ModelForm) -> nn.Module:
    """The built-in model without any numbers: its parameters take no memory."""
    with torch.device("meta"):
        return build_model(form.kind, form.inputs, form.outputs, hidden=form.hidden)


class PooledPatches(nn.Module):
    """[batch, channels, H, W] → [batch, windows, 4, channels·size²]: the four patches of each 2×2 pooling window.

    A linear layer on them, followed by `StrongestPatch`, is a convolution with ReLU and 2×2 max-pooling. Written so,
    the convolution of many stacked models is one batched matrix product, where torch would make a slow grouped one
    of `nn.Conv2d`; and as this module has no parameters, its work on fixed data is done once.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        patches = images.unfold(2, self.size, 1).unfold(3, self.size, 1)  # [batch, channels, H, W, size, size]
        batch, channels, height, width = patches.shape[:4]
        h, w = height // 2, width // 2
        windows = patches[:, :, : 2 * h, : 2 * w].reshape(batch, channels, h, 2, w, 2, self.size, self.size)
        return windows.permute(0, 2, 4, 3, 5, 1, 6, 7).reshape(batch, h * w, 4, -1)


class StrongestPatch(nn.Module):
    """[batch, windows, 4, filters] → [batch, filters, windows]: max-pooling, then ReLU, which commute."""

    def forward(self, responses: Tensor) -> Tensor:
        return torch.relu(responses.amax(2)).mT


def caller(model: nn.Module) -> Callable[[dict[str, Tensor], Inputs], Tensor]:
    """A function of (parameters and buffers by name, inputs) that runs the model with them.

    Tensors that two layers share are named here, because torch's own way to tie them (tie_weights) leaves a model in
    which one layer stands at two places with the last call's tensors, which are dead outside vmap.
    """
    first: dict[int, str] = {}
    also: dict[str, str] = {}
    for prefix, layer in model.named_modules():
        for attribute, tensor in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
            name = f"{prefix}.{attribute}" if prefix else attribute
            if first.setdefault(id(tensor), name) != name:
                also[name] = first[id(tensor)]

    def run(w: dict[str, Tensor], x: Inputs) -> Tensor:
        tied = {name: w[known] for name, known in also.items() if known in w}
        args, named = ((), dict(x.tensors)) if isinstance(x, NamedInputs) else ((x,), {})
        outputs: Any = functional_call(model, {**w, **tied}, args, named, tie_weights=False)
        return tensor_of(outputs)

    return run


def tensor_of(outputs: Any) -> Tensor:
    """A model's outputs; of an object that has them among other things, as models of transformers give, its logits."""
    logits = getattr(outputs, "logits", None)
    found: Tensor = logits if isinstance(logits, Tensor) and not isinstance(outputs, Tensor) else outputs
    return found


LARGE = 2**22
"""From so many trained parameters on (16 MiB) models are formed, trained and scored one at a time: several side by side
are no faster then, and memory is what runs out. It depends on the model alone, so that a market gives the same bits on
any machine."""

FIXED_FLOATS = 2**30
"""Data that passed a model's first layers ahead of time are kept under this many floats (4 GiB)."""


def split_fixed_prefix(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """The model without its first layers that have no parameters, and the data `x` after those layers.

    Only layers that are plain functions of each sample are taken. What is left keeps the names of its parameters.
    """
    if type(model) is not nn.Sequential:
        return model, x
    rest = copy.copy(model)
    rest._modules = dict(model._modules)
    for name, layer in model._modules.items():
        if type(layer) not in (nn.Flatten, PooledPatches) or layer is None or not len(x):
            break
        if len(x) * layer(x[:1]).numel() > FIXED_FLOATS:
            break
        x = layer(x)
        del rest._modules[name]
    return rest, x


@dataclass(frozen=True)
class Layout:
    """Where each tensor that travels lies in the flat vector: trained parameters, then buffers that training changes.

    A batch norm's running mean is part of the trained model, so it is averaged too. What stays is taken from the module
    that runs (learning/parameter_exchange.py).
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    trainable: int

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        named = [(name, p.shape) for name, p in model.named_parameters() if p.requires_grad]
        trainable = len(named)
        named += [(name, b.shape) for name, b in moving_buffers(model)]
        return cls(tuple(n for n, _ in named), tuple(s for _, s in named), trainable)

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def flatten(self, model: nn.Module) -> Tensor:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return torch.cat([tensors[name].detach().reshape(-1).to(torch.float32) for name in self.names])

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views into `flat` [..., d] by name, each [..., *shape]: writing to a view writes to the vector."""
        pieces = torch.split(flat, self.sizes, dim=-1)
        lead = flat.shape[:-1]
        return {
            name: piece.view(*lead, *shape) for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def load(self, model: nn.Module, flat: Tensor) -> None:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        with torch.no_grad():
            for name, value in self.unflatten(flat).items():
                tensors[name].copy_(value)


def hash_vector(flat: Tensor) -> str:
    """SHA-256 of a parameter vector: its type, its length and its bytes."""
    return hash_array(flat.detach().cpu().numpy())
