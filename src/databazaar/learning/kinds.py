"""The names of built-in models and oracles, and the sizes of a model's layers. Needs no torch or NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, get_args

from databazaar.errors import BazaarError

ModelKind = Literal["linear", "logistic", "mlp", "cnn"]
MODEL_KINDS: tuple[ModelKind, ...] = get_args(ModelKind)

OracleKind = Literal["full-gradient", "stochastic-gradient", "local-sgd"]

FILTER_SIDE, FILTERS, CNN_HIDDEN = 5, 6, 120
"""The paper's network for CIFAR-10: six filters of 5×5, 2×2 max-pooling, and 120 hidden units."""


def pooled_side(side: int) -> int:
    """How many 2×2 pooling windows lie along a side of an image, after the filters.

    >>> pooled_side(32)
    14
    """
    return (side - FILTER_SIDE + 1) // 2


def layer_sizes(kind: str, inputs: Sequence[int], outputs: int, hidden: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Inputs and outputs of every layer that has parameters, the first one first. `hidden` is for an mlp.

    >>> layer_sizes("cnn", [3, 32, 32], 10)
    [(75, 6), (1176, 120), (120, 10)]
    """
    if kind in ("linear", "logistic"):
        return [(prod(inputs), outputs)]
    if kind == "mlp":
        return list(pairwise([prod(inputs), *hidden, outputs]))
    if kind != "cnn":
        raise BazaarError(f"model {kind!r} is unknown: use one of {', '.join(MODEL_KINDS)}, or a torch.nn.Module")
    smallest = FILTER_SIDE + 1
    if len(inputs) != 3 or min(inputs[1:]) < smallest:
        raise BazaarError(
            f"a cnn takes images of channels × height × width with sides of at least {smallest}, not {list(inputs)}: "
            "give the image's shape, or use an mlp"
        )
    channels, height, width = inputs
    pooled = FILTERS * pooled_side(height) * pooled_side(width)
    return [(FILTER_SIDE**2 * channels, FILTERS), (pooled, CNN_HIDDEN), (CNN_HIDDEN, outputs)]


def parameter_count(kind: str, inputs: Sequence[int], outputs: int, hidden: Sequence[int] = ()) -> int:
    """How many parameters `build_model` would make, counted without making them.

    >>> parameter_count("mlp", [784], 10, hidden=[300])
    238510
    """
    return sum((a + 1) * b for a, b in layer_sizes(kind, inputs, outputs, hidden))


@dataclass(frozen=True)
class ModelForm:
    """What a built-in model is made from: with it and its parameters, the model can be built anywhere."""

    kind: str
    inputs: tuple[int, ...]
    outputs: int
    hidden: tuple[int, ...] = ()

    @property
    def sizes(self) -> str:
        """
        >>> ModelForm("cnn", (3, 32, 32), 10).sizes, ModelForm("mlp", (784,), 10, (300,)).sizes
        ('3×32×32 → 10', '784 → 300 → 10')
        """
        return " → ".join(["×".join(map(str, self.inputs)), *map(str, self.hidden), str(self.outputs)])

    @property
    def parameter_count(self) -> int:
        return parameter_count(self.kind, self.inputs, self.outputs, self.hidden)
