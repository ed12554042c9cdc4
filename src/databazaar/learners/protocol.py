"""What every learner offers. Its settings need no torch; what it makes of a market does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from databazaar.registry import Registry

if TYPE_CHECKING:
    import torch

    from databazaar.aggregators import Aggregator
    from databazaar.learning.utilities import Evaluator
    from databazaar.parties import Consumer
    from databazaar.training import Training

LEARNERS = Registry("learner", "databazaar.learners")
"""Every learner by its kind."""


@dataclass(frozen=True, eq=False)
class Market:
    """What a learner is given of the market that it trains for."""

    consumer: Consumer
    evaluator: Evaluator
    aggregator: Aggregator
    device: torch.device
    seed: int


@runtime_checkable
class Learner(Protocol):
    """Frozen settings with a kind. `check_learner` tests the contract."""

    kind: ClassVar[str]

    @property
    def rows(self) -> int | None:
        """The most rows of a provider that an access buys; None where it buys an update that the oracle computes."""
        ...

    def training(self, market: Market) -> Training:
        """The learner at work in a market."""
        ...
