"""The paper's learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from databazaar.learners.protocol import Market
    from databazaar.training import Training


@dataclass(frozen=True)
class Averaging:
    """Each provider trains the model on its own rows (its oracle), and the aggregator combines the updates."""

    kind: ClassVar[str] = "averaging"
    rows: ClassVar[None] = None

    def training(self, market: Market) -> Training:
        from databazaar.training.averaging import AveragingTraining

        own = market.consumer.own_updates(market.device, market.seed)
        return AveragingTraining(market.aggregator, market.evaluator, market.consumer.step, own)
