"""What every learner offers. Its settings need no torch; what it makes of a market does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from databazaar.registry import Registry

if TYPE_CHECKING:
    import torch

    from databazaar.aggregators import Aggregator
    from databazaar.learning.utilities import Evaluator
    from databazaar.parties import Consumer
    from databazaar.training import Model, Training

LEARNERS = Registry("learner", "databazaar.learners")
"""Every learner by its kind."""


@dataclass(frozen=True, eq=False)
class Market:
    """What a learner is given of the market that it trains for. `rounds` is about how many the budget buys. Runs whose
    consumers judge alike may share an evaluator."""

    consumer: Consumer
    aggregator: Aggregator
    device: torch.device
    seed: int
    rounds: int
    evaluator: Evaluator | None = None

    @cached_property
    def scorer(self) -> Evaluator:
        """What scores vectors of parameters."""
        return self.evaluator or self.consumer.evaluator(self.device)


@runtime_checkable
class Learner(Protocol):
    """Frozen settings with a kind. `check_learner` tests the contract."""

    kind: ClassVar[str]
    example: ClassVar[str]
    """The kind of a model that it can train: `check_learner` does."""

    @property
    def models(self) -> tuple[str, ...] | None:
        """The kinds of models that it trains; None: every model that has parameters and no learner of its own."""
        ...

    @property
    def rows(self) -> int | None:
        """The most rows of a provider that an access buys; None where it buys an update that the oracle computes."""
        ...

    @property
    def passes(self) -> int:
        """How often a round goes through each of its rows at the most, once for each of several classes. An oracle's
        settings say it themselves."""
        ...

    def begin(self, consumer: Consumer) -> Model:
        """The model that the market starts from."""
        ...

    def training(self, market: Market) -> Training:
        """The learner at work in a market."""
        ...
