"""Linear models by Newton's method: an access buys rows, and what stays of them are sums of squares and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.settings import check_settings, setting

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training

MOST = 10**6


@dataclass(frozen=True)
class Newton:
    """Solves for a linear model's parameters on the rows of all drawn providers, of the buyer, and of earlier rounds.

    A round takes one Newton step. For numbers and with a decay of 1 it is ridge regression on all rows bought so far.
    """

    rows: int = setting(4096, "the most rows of a provider that an access buys", at_least=1, at_most=MOST)
    ridge: float | None = setting(
        None,
        "the ridge: a round adds half of it times the squared weights to its sum of losses",
        above=0,
        at_most=1e12,
        example=1.0,
        without="by the buyer's own rows",
    )
    decay: float = setting(0.9, "how much of earlier rounds a round keeps", at_least=0, at_most=1, in_files=False)
    kind: ClassVar[str] = "newton"
    example: ClassVar[str] = "logistic"
    models: ClassVar[tuple[str, ...]] = ("linear", "logistic")
    passes: ClassVar[int] = 24
    """Slopes, sums of products, and losses at shorter and shorter steps."""

    def __post_init__(self) -> None:
        check_settings(self, f"learner {self.kind}")

    def begin(self, consumer: Consumer) -> Model:
        from databazaar.training.newton import begun

        return begun(self, consumer)

    def training(self, market: Market) -> Training:
        from databazaar.training.newton import NewtonTraining

        return NewtonTraining.of(self, market)
