"""The paper's learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training


@dataclass(frozen=True)
class Averaging:
    """Each provider trains the model on its own rows (its oracle), and the aggregator combines the updates."""

    kind: ClassVar[str] = "averaging"
    example: ClassVar[str] = "logistic"
    models: ClassVar[None] = None
    rows: ClassVar[None] = None
    passes: ClassVar[int] = 1

    def begin(self, consumer: Consumer) -> Model:
        from databazaar.training.parameters import Parameters

        return Parameters(consumer.initial_parameters())

    def training(self, market: Market) -> Training:
        from databazaar.training.averaging import AveragingTraining

        consumer, device = market.consumer, market.device
        own = consumer.own_updates(device, market.seed)
        return AveragingTraining(consumer, market.scorer, device, market.aggregator, consumer.step, own)
