"""A small convolutional network, for images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from databazaar.errors import BazaarError
from databazaar.models.mlp import WIDEST
from databazaar.settings import check_settings, setting


@dataclass(frozen=True)
class CNN:
    """A small network for images."""

    image: tuple[int, int, int] | None = setting(
        None,
        "[channels, height, width]",
        at_least=1,
        at_most=WIDEST,
        example=(1, 28, 28),
        without="a square of one channel",
    )
    kind: ClassVar[str] = "cnn"
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    hidden: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check_settings(self, "model cnn")

    def shape(self, width: int) -> tuple[int, ...]:
        """Channels, height and width of a row of `width` features: `image`, or else a square of one channel.

        >>> CNN().shape(784)
        (1, 28, 28)
        """
        side = math.isqrt(width)
        shape = self.image or (1, side, side)
        if math.prod(shape) != width:
            problem = (
                f"model.image = {list(shape)} holds {math.prod(shape)} numbers"
                if self.image
                else "model.image is not given, so the features must form a square"
            )
            raise BazaarError(
                f"{problem}, and the hold-out gives {width} features: "
                "write model.image = [channels, height, width] whose product is that number"
            )
        return shape
