"""A multilayer perceptron."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.models.protocol import Flat
from databazaar.settings import check_settings, setting

MOST_LAYERS, WIDEST = 100, 10**7


@dataclass(frozen=True)
class MLP(Flat):
    """A small neural network."""

    hidden: tuple[int, ...] = setting(
        (32,), "sizes of the hidden layers, such as [32]", at_least=1, at_most=WIDEST, entries=(1, MOST_LAYERS)
    )
    kind: ClassVar[str] = "mlp"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def __post_init__(self) -> None:
        check_settings(self, "model mlp")
