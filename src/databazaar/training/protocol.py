"""What the market asks of a family of models: to learn from a round's answers, and to say what each was worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines import Replies
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn

Memory = Mapping[str, Tensor]
"""What a learner remembers between rounds, by name. It is kept in the snapshot with the model."""


@dataclass(frozen=True)
class Lesson:
    """A round's answers, and all else that learning from them depends on.

    `spent` is the share of the budget that earlier rounds have spent. Those `left_out` have answered, but their answers
    do not move the model. `gains` are those that the sampler wants: `alone` or `shapley`.
    """

    params: Tensor
    memory: Memory
    utility: float
    loss: float | None
    drawn: Drawn
    replies: Replies
    round: int
    spent: float = 0.0
    left_out: frozenset[int] = frozenset()
    gains: str = "shapley"

    @property
    def unchanged(self) -> Scores:
        """The scores of the model that the round began with."""
        return Scores(np.array([self.utility]), np.array([np.nan if self.loss is None else self.loss]))


@dataclass(frozen=True)
class Learned:
    """What a round comes to: the gain of each provider asked, None where its answer is void, the reasons for those, and
    the next model with its scores."""

    gains: Mapping[int, float | None]
    failures: Mapping[int, Code]
    params: Tensor
    memory: Memory
    scores: Scores


class Training(Protocol):
    """One family's way to learn, for one market: pure functions of what they are given.

    A round's move of the model is a sum of parts, one a provider. A part's gain is its halfway difference
    U(m + part/2) − U(m − part/2) or, where that is dear, its first-order value.
    """

    def init(self, params: Tensor) -> Memory:
        """What is remembered before the first round."""
        ...

    def learn(self, lesson: Lesson) -> Learned:
        """The gains of a round's answers, and the next model. It has a finite utility, or is the one before."""
        ...
