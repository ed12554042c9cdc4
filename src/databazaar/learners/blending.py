"""Trees and a linear model on the same bought rows, and the mixture of both that judges the buyer's rows best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.learners.boosting import Boosting
from databazaar.learners.newton import Newton

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training


@dataclass(frozen=True)
class Blending(Boosting):
    """Trains trees by boosting and a linear model by Newton's method on the same rows, and blends their scores.

    The share of each is that of the least loss on the hold-out, found anew after every round: small and noisy tables
    get a nearly linear model, others trees.
    """

    kind: ClassVar[str] = "blending"
    example: ClassVar[str] = "auto"
    models: ClassVar[tuple[str, ...]] = ("auto",)

    @property
    def linear(self) -> Newton:
        return Newton(self.rows)

    @property
    def passes(self) -> int:
        return super().passes + self.linear.passes

    def begin(self, consumer: Consumer) -> Model:
        from databazaar.training.blending import begun

        return begun(self, consumer)

    def training(self, market: Market) -> Training:
        from databazaar.training.blending import BlendTraining

        return BlendTraining.of(self, market)
