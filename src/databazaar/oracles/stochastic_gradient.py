"""The negative gradient over one random batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.oracles.protocol import MOST_STEPS, Batches
from databazaar.randomness import sample_order
from databazaar.settings import check_settings, setting


@dataclass(frozen=True)
class StochasticGradient:
    """The negative gradient of the mean loss over one random batch."""

    batch_size: int = setting(32, "the rows of the batch", at_least=1, at_most=MOST_STEPS)
    kind: ClassVar[str] = "stochastic-gradient"

    def __post_init__(self) -> None:
        check_settings(self, "oracle stochastic-gradient")

    def batches(self, samples: int, key: int) -> Batches:
        return sample_order(key, samples, first=self.batch_size)[None]
