"""Work of a valuation that others can do whole: only parameters go there, and only utilities come back.

A coalition is trained and scored by one worker, and so is a walk along a permutation, or a block of models that a
round's updates make (valuation/combinations.py). Each is one function of the start, on one thread, so its bits are the
same whoever runs it, and however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Mean
from databazaar.engines.protocol import Ask, Engine
from databazaar.learning.utilities import Evaluator

Vector = NDArray[np.float64]
T = TypeVar("T")


@dataclass(eq=False)
class Start:
    """Where errands of one kind begin: some parameters and, where they are about a round, its updates [K, d].

    It is sent once, as long as it lives, and its numbers never change. What one errand works out for all that begin
    here, it leaves here.
    """

    params: Tensor
    updates: Tensor | None = None
    _left: Any = field(default=None, init=False, repr=False)

    @property
    def floats(self) -> int:
        return self.params.numel() + (0 if self.updates is None else self.updates.numel())

    def once(self, work_out: Callable[[], T]) -> T:
        """What was left here, or what is left here now."""
        if self._left is None:
            self._left = work_out()
        found: T = self._left
        return found


class Errand(Protocol):
    """Something to find out from an engine and an evaluator, beginning somewhere."""

    @property
    def length(self) -> int:
        """How many numbers it finds."""

    def run(self, engine: Engine, evaluator: Evaluator, start: Start) -> Vector:
        """Those numbers."""


@runtime_checkable
class RunsErrands(Protocol):
    """An engine that has others to run errands."""

    def errands(self, evaluator: Evaluator, start: Start, errands: Sequence[Errand]) -> list[Vector] | None:
        """What each errand of a valuation finds, all of one kind; None where nobody can run these: then the valuation
        works it out by itself."""


@dataclass(frozen=True)
class Training:
    """The utility of a model that these members alone have trained: in each round every one of them is asked, and the
    mean of the valid updates moves it by this round's step."""

    members: Sequence[int]
    steps: Sequence[float]
    seed: int
    length: int = 1

    def run(self, engine: Engine, evaluator: Evaluator, start: Start) -> Vector:
        params, mean = start.params, Mean()
        for round, step in enumerate(self.steps if self.members else ()):
            replies = engine.query(Ask(params, self.members, round, self.seed))
            valid = [place for place, member in enumerate(self.members) if member not in replies.failures]
            if valid:
                params = params + mean.combine(mean.init(params), replies.updates[valid], step)[1]
        return evaluator.score(params[None]).utility


@dataclass(frozen=True)
class Walk:
    """The utilities after the first provider's update, after the second's, …: a step that leads to a model without a
    finite utility is not taken. The start is worth `nothing`."""

    order: Sequence[int]
    step: float
    seed: int
    nothing: float

    @property
    def length(self) -> int:
        return len(self.order)

    def run(self, engine: Engine, evaluator: Evaluator, start: Start) -> Vector:
        params, worth, along = start.params, self.nothing, []
        step = torch.tensor(self.step).to(params)
        for provider in self.order:
            moved = torch.addcmul(params, step, engine.query(Ask(params, [provider], 0, self.seed)).updates[0])
            after = float(evaluator.score(moved[None]).utility[0])
            if np.isfinite(after):
                params, worth = moved, after
            along.append(worth)
        return np.array(along)
