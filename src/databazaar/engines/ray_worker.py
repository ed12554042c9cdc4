"""What a worker of a Ray cluster does: it holds all providers' data and answers for one of them at a time."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines.errands import Errand, Start
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
from databazaar.engines.sums import largest_of, models_of
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.learning.inputs import Examples
from databazaar.learning.losses import Loss
from databazaar.learning.sums import Part, reached, stepped_in, total
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.parties.provider import Provider

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Judging:
    """How models are scored: by what a consumer judges with."""

    loss: Loss
    holdout: Examples
    utility: str


@dataclass(frozen=True)
class Measure:
    """What gains are measured by: the name of a judging, that is sent once, what a market calls its gains, and its
    step γ."""

    judging: str
    gains: str
    step: float


@dataclass
class HeldRound:
    """What a worker keeps of one round until it is over."""

    name: str
    params: Tensor
    held: dict[int, Tensor] = field(default_factory=dict)
    total: Tensor | None = None
    room: Tensor = field(init=False)
    """For the model that is scored."""

    def __post_init__(self) -> None:
        self.room = torch.empty_like(self.params)


class RayWorker:
    """Lives in a process of the cluster. Data and model are sent once, when it starts."""

    def __init__(self, task: Task, providers: Sequence[Provider]) -> None:
        torch.set_num_threads(1)
        self._task = task
        self._engine = one_by_one(task, providers)
        self._evaluators: dict[str, Evaluator] = {}
        self._round: HeldRound | None = None
        self._starts: dict[str, Start] = {}

    def update(
        self, params: NDArray[Any], provider: int, round: int, seed: int, alive: Collection[str]
    ) -> NDArray[Any] | str:
        """One provider's update of these parameters, or why there is none. Starts that are not `alive` are let go."""
        self._keep(alive)
        answer = self._update(_copied(params), provider, round, seed)
        return answer if isinstance(answer, str) else answer.numpy()

    def _update(self, params: Tensor, provider: int, round: int, seed: int) -> Tensor | str:
        replies = self._engine.query(Ask(params, [provider], round, seed))
        return replies.failures.get(provider, replies.updates[0])

    def errand(
        self,
        params: NDArray[Any],
        updates: NDArray[Any],
        judging: NDArray[Any],
        start: str,
        alive: Collection[str],
        judge: str,
        errand: Errand,
        length: int,
    ) -> NDArray[np.float64]:
        """Runs it from the start of this name; others that are not `alive` are let go. What it finds is filled up to
        this length."""
        self._keep(alive)
        if start not in self._starts:
            self._starts[start] = Start(_copied(params), _seen(updates))
        found = errand.run(self._engine, self._evaluator(judge, judging), self._starts[start])
        return np.pad(found, (0, length - len(found)))

    def _keep(self, alive: Collection[str]) -> None:
        self._starts = {name: start for name, start in self._starts.items() if name in alive}

    def hold(
        self,
        params: NDArray[Any],
        judging: NDArray[Any],
        name: str,
        key: int,
        provider: int,
        round: int,
        seed: int,
        measure: Measure,
    ) -> tuple[float, float | None] | str:
        """Computes an update and keeps it: its largest number, and for gains `alone` its utility; or why there is
        none."""
        here = self._begun(name, params, measure, judging)
        update = self._update(here.params, provider, round, seed)
        if isinstance(update, str):
            return update
        here.held[key] = update
        alone = (
            self._score(here, measure, Part(measure.step, 0), update, update)[0] if measure.gains == "alone" else None
        )
        return largest_of(update), alone

    def add(self, name: str, keys: Sequence[int], summed: NDArray[Any] | None = None) -> NDArray[Any]:
        """The sum so far and these updates, in their order."""
        here = self._round
        assert here is not None
        assert here.name == name
        before = [] if summed is None else [_seen(summed)]
        return total([*before, *(here.held[key] for key in keys)]).numpy()

    def look(
        self,
        summed: NDArray[Any],
        params: NDArray[Any],
        own: NDArray[Any],
        judging: NDArray[Any],
        name: str,
        key: int | None,
        draws: int,
        times: int,
        measure: Measure,
    ) -> list[tuple[float, float | None]]:
        """Utility and loss of the models that a provider's gain is measured by, who was drawn so many `times`; without
        a key, of the model that the sum leads to. `own` is the consumer's own update; empty where it has none."""
        here, more = self._begun(name, params, measure, judging), min(1, len(own))
        if here.total is None:
            here.total = total([_seen(summed), _seen(own)]) if more else _seen(summed)
        if key is None:
            return [self._score(here, measure, reached(measure.step, draws, more), here.total, here.total)]
        parts = models_of(measure.gains, measure.step, draws, more, times)
        return [self._score(here, measure, part, here.total, here.held[key]) for part in parts]

    def _score(
        self, here: HeldRound, measure: Measure, part: Part, summed: Tensor, update: Tensor
    ) -> tuple[float, float | None]:
        model = stepped_in(here.room, here.params, part, summed, update)
        scores = self._evaluators[measure.judging].score(model[None])
        return float(scores.utility[0]), None if scores.loss is None else float(scores.loss[0])

    def _begun(self, name: str, params: NDArray[Any], measure: Measure, judging: NDArray[Any]) -> HeldRound:
        """This round's, after letting go of any other."""
        self._evaluator(measure.judging, judging)
        if self._round is None or self._round.name != name:
            self._round = None
            self._round = HeldRound(name, _copied(params))
        return self._round

    def _evaluator(self, name: str, judging: NDArray[Any]) -> Evaluator:
        """Made of a `Judging` that the run's own process has pickled, as it has all of a worker's work
        (cluster/host.py): nothing of another party's comes this way."""
        if name not in self._evaluators:
            self._evaluators[name] = evaluator_of(self._task, pickle.loads(judging.data))  # noqa: S301
        return self._evaluators[name]

    def let_go(self) -> None:
        self._round = None


def _copied(shared: NDArray[Any]) -> Tensor:
    """What Ray shares cannot be written to."""
    return torch.from_numpy(np.array(shared))


def _seen(shared: NDArray[Any]) -> Tensor:
    """What Ray shares, where it lies: nobody may write to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that it could
        return torch.from_numpy(shared)


def evaluator_of(task: Task, judging: Judging) -> Evaluator:
    return Evaluator(replace(task.copied(), loss=judging.loss), judging.holdout, judging.utility, CPU)


def one_by_one(task: Task, providers: Sequence[Provider]) -> Engine:
    """The engine inside a worker: stacks of one row where a model can be stacked, because these are fast."""
    try:
        return VectorizedEngine(task, providers, CPU)
    except NotVectorizableError:
        return LoopEngine(task, providers, CPU)
