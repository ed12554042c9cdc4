"""The built-in models: their settings in market.toml, and the sizes of their layers. Needs no torch or NumPy.

`learning.models.build_model` builds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import ClassVar, Literal, get_args

from databazaar.errors import BazaarError
from databazaar.registry import Registry
from databazaar.settings import check_settings, setting

TrainedOnRows = Literal["convnet"]
"""Networks that a provider is not asked to update."""
ModelKind = Literal["linear", "logistic", "mlp", "cnn"]
"""Models with parameters: those that a provider can be asked to update."""
MODEL_KINDS: tuple[ModelKind, ...] = get_args(ModelKind)
MOST_LAYERS, WIDEST = 100, 10**7


class Flat:
    """A model that takes rows as they are. `hidden` are the sizes of its hidden layers, and a subclass says in `tasks`
    what it is for, and in `learner` who trains it where rows are here and nobody is named."""

    hidden: tuple[int, ...] = ()
    learner: ClassVar[str] = "averaging"

    def shape(self, width: int) -> tuple[int, ...]:
        """The form in which it takes a row of so many features."""
        return (width,)


@dataclass(frozen=True)
class Linear(Flat):
    """Linear regression, for numbers."""

    kind: ClassVar[str] = "linear"
    tasks: ClassVar[tuple[str, ...]] = ("regression",)


@dataclass(frozen=True)
class Logistic(Flat):
    """Logistic regression, for classes."""

    kind: ClassVar[str] = "logistic"
    tasks: ClassVar[tuple[str, ...]] = ("classification",)


@dataclass(frozen=True)
class MLP(Flat):
    """A multilayer perceptron."""

    hidden: tuple[int, ...] = setting(
        (32,), "sizes of the hidden layers, such as [32]", at_least=1, at_most=WIDEST, entries=(1, MOST_LAYERS)
    )
    kind: ClassVar[str] = "mlp"
    learner: ClassVar[str] = "in-run"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def __post_init__(self) -> None:
        check_settings(self, "model mlp")


@dataclass(frozen=True)
class CNN:
    """The paper's convolutional network, for images."""

    image: tuple[int, int, int] | None = setting(
        None,
        "[channels, height, width]",
        at_least=1,
        at_most=WIDEST,
        example=(1, 28, 28),
        without="a square of one channel",
    )
    kind: ClassVar[str] = "cnn"
    learner: ClassVar[str] = "in-run"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    hidden: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_settings(self, f"model {self.kind}")

    def shape(self, width: int) -> tuple[int, ...]:
        """Channels, height and width of a row of `width` features: `image`, or else a square of one channel.

        >>> CNN().shape(784)
        (1, 28, 28)
        """
        side = isqrt(width)
        shape = self.image or (1, side, side)
        if prod(shape) != width:
            problem = (
                f"model.image = {list(shape)} holds {prod(shape)} numbers"
                if self.image
                else "model.image is not given, so the features must form a square"
            )
            raise BazaarError(
                f"{problem}, and the hold-out gives {width} features: "
                "write model.image = [channels, height, width] whose product is that number"
            )
        return shape


@dataclass(frozen=True)
class ConvNet(CNN):
    """A convolutional network of two layers of 3×3 filters, for images, trained on rows."""

    kind: ClassVar[str] = "convnet"
    learner: ClassVar[str] = "in-run"


class Columns(Flat):
    """A model that takes columns as they are: numbers, codes 0, 1, 2, … of categories, and NaN where one is missing.
    `categorical` are the places of codes."""

    kind: ClassVar[str]
    categorical: tuple[int, ...] = ()


@dataclass(frozen=True)
class Auto(Columns):
    """Trees and a linear model, blended by whatever mixture judges your rows best. The last `grams` features of a row
    are buckets of the grams in its texts, NaN where it has fewer: only the linear model takes them."""

    categorical: tuple[int, ...] = setting((), "places of features that are categories", in_files=False)
    grams: int = setting(0, "how many features at the end are buckets of grams", at_least=0, in_files=False)
    kind: ClassVar[str] = "auto"
    learner: ClassVar[str] = "blending"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def __post_init__(self) -> None:
        check_settings(self, "model auto")


@dataclass(frozen=True)
class Trees(Columns):
    """Boosted trees, which LightGBM opens too. Missing values are NaN.

    In files `rising` and `falling` are names of columns, from Python places of features.
    """

    rising: tuple[str | int, ...] = setting(
        (), "columns of numbers: the answer never falls where one rises", example=("income",)
    )
    falling: tuple[str | int, ...] = setting(
        (), "columns of numbers: the answer never rises where one rises", example=("debt",)
    )
    categorical: tuple[int, ...] = setting((), "places of features that are categories", in_files=False)
    kind: ClassVar[str] = "trees"
    learner: ClassVar[str] = "boosting"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def __post_init__(self) -> None:
        check_settings(self, "model trees")


MODELS = Registry(
    "model", {one.kind: f"{__name__}:{one.__name__}" for one in (Auto, CNN, ConvNet, Linear, Logistic, MLP, Trees)}
)
"""Every built-in model by its kind."""
ColumnsKind = Literal["auto", "trees"]
"""Models that take columns as they are."""
OF_COLUMNS: tuple[ColumnsKind, ...] = get_args(ColumnsKind)
GRAM_BUCKETS = 2**18
"""Of the grams of texts. Fewer make unlike words share one: 2^14 cost 6 to 15 % of the log loss on real texts."""

FILTER_SIDE, FILTERS, CNN_HIDDEN = 5, 6, 120
"""The paper's network for CIFAR-10: six filters of 5×5, 2×2 max-pooling, and 120 hidden units."""
CONV_SIDE, CONV_FILTERS, CONV_HIDDEN = 3, (32, 64), 128
"""The other one: two layers of filters, each with 2×2 max-pooling, and the units of a hidden layer."""


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
    if kind == "convnet":
        return _conv_sizes(inputs, outputs)
    if kind != "cnn":
        raise BazaarError(f"model {kind!r} is unknown: use one of {', '.join(MODELS)}, or a torch.nn.Module")
    smallest = FILTER_SIDE + 1
    if len(inputs) != 3 or min(inputs[1:]) < smallest:
        raise BazaarError(
            f"a cnn takes images of channels × height × width with sides of at least {smallest}, not {list(inputs)}: "
            "give the image's shape, or use an mlp"
        )
    channels, height, width = inputs
    pooled = FILTERS * pooled_side(height) * pooled_side(width)
    return [(FILTER_SIDE**2 * channels, FILTERS), (pooled, CNN_HIDDEN), (CNN_HIDDEN, outputs)]


def _conv_sizes(inputs: Sequence[int], outputs: int) -> list[tuple[int, int]]:
    """
    >>> _conv_sizes([3, 32, 32], 10)
    [(27, 32), (288, 64), (4096, 128), (128, 10)]
    """
    if len(inputs) != 3 or min(inputs[1:]) < 4:
        raise BazaarError(
            f"a convnet takes images of channels × height × width with sides of at least 4, not {list(inputs)}: "
            "give the image's shape, or use an mlp"
        )
    (channels, height, width), (first, second) = inputs, CONV_FILTERS
    pooled = second * (height // 4) * (width // 4)
    patch = CONV_SIDE**2
    return [(patch * channels, first), (patch * first, second), (pooled, CONV_HIDDEN), (CONV_HIDDEN, outputs)]


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
