"""What the market asks of a family of models: to learn from a round's answers, and to say what each was worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines import Replies
from databazaar.learning.inputs import Inputs
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn
from databazaar.row_values import JudgedRows
from databazaar.vectors import HashedArray

Memory = Mapping[str, Tensor]
"""What a learner remembers between rounds, by name. It is kept in the snapshot with the model."""


class Model(Protocol):
    """A model as the market sees it: a value that is never changed. What it means is known to its learner alone."""

    @property
    def stored(self) -> HashedArray:
        """All of it as one array: the ledger has its hash, the snapshot and the model's folder have its numbers."""
        ...

    @property
    def size(self) -> int:
        """How many numbers an answer moves at once: large computations take several threads."""
        ...


@dataclass(frozen=True)
class Lesson:
    """A round's answers, and all else that learning from them depends on.

    `spent` is the share of the budget that earlier rounds have spent. Those `left_out` have answered, but their answers
    do not move the model. `gains` are those that the sampler wants: `alone` or `shapley`. `values_rows`: whether single
    rows are to be valued too.
    """

    model: Model
    memory: Memory
    utility: float
    loss: float | None
    drawn: Drawn
    replies: Replies
    round: int
    spent: float = 0.0
    left_out: frozenset[int] = frozenset()
    gains: str = "shapley"
    values_rows: bool = False

    @property
    def unchanged(self) -> Scores:
        """The scores of the model that the round began with."""
        return Scores(np.array([self.utility]), np.array([np.nan if self.loss is None else self.loss]))


@dataclass(frozen=True)
class Learned:
    """What a round comes to: the gain of each provider asked, None where its answer is void, the reasons for those, and
    the next model with its scores. `rows` are those of each provider that were judged one by one, where that was asked
    for."""

    gains: Mapping[int, float | None]
    failures: Mapping[int, Code]
    model: Model
    memory: Memory
    scores: Scores
    rows: Mapping[int, JudgedRows] = field(default_factory=dict)


class Training(Protocol):
    """One family's way to learn, for one market: pure functions of what they are given.

    A round's move of the model is a sum of parts, one a provider: in parameters, or in predictions. A part's gain is
    its halfway difference U(m + part/2) − U(m − part/2) or, where that is dear, its first-order value.
    """

    def restored(self, stored: NDArray[Any]) -> Model:
        """The model that an array holds."""
        ...

    def init(self, model: Model) -> Memory:
        """What is remembered before the first round."""
        ...

    def score(self, model: Model) -> Scores:
        """How good a model is on the hold-out."""
        ...

    def question(self, model: Model) -> Tensor:
        """What travels to the providers that are asked; empty where rows are asked for."""
        ...

    def learn(self, lesson: Lesson) -> Learned:
        """The gains of a round's answers, and the next model. It has a finite utility, or is the one before."""
        ...

    def outputs(self, model: Model, x: Inputs) -> NDArray[np.float64]:
        """The model's outputs for rows [rows, outputs]: log odds or logits of classes, or numbers."""
        ...

    def own_rows_alone(self) -> Model:
        """The model that the consumer could have had without any market: from all of its rows but the audit's."""
        ...
