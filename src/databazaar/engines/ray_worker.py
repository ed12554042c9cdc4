"""What a worker of a Ray cluster does: it holds all providers' data and answers for one of them at a time."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines.errands import Errand, Start
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.learning.inputs import Examples
from databazaar.learning.losses import Loss
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.parties.provider import Provider
from databazaar.utilities import Utility

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Judging:
    """How models are scored: by what a consumer judges with."""

    loss: Loss
    holdout: Examples
    utility: Utility


class RayWorker:
    """Lives in a process of the cluster. Data and model are sent once, when it starts."""

    def __init__(self, task: Task, providers: Sequence[Provider]) -> None:
        torch.set_num_threads(1)
        self._task = task
        self._engine = one_by_one(task, providers)
        self._evaluators: dict[str, Evaluator] = {}
        self._starts: dict[str, Start] = {}

    def update(
        self, params: NDArray[Any], provider: int, round: int, seed: int, alive: Collection[str]
    ) -> NDArray[Any] | Code:
        """One provider's update of these parameters, or why there is none. Starts that are not `alive` are let go."""
        self._keep(alive)
        answer = self._update(_copied(params), provider, round, seed)
        return answer if isinstance(answer, Code) else answer.numpy()

    def _update(self, params: Tensor, provider: int, round: int, seed: int) -> Tensor | Code:
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

    def _evaluator(self, name: str, judging: NDArray[Any]) -> Evaluator:
        """Made of a `Judging` that the run's own process has pickled, as it has all of a worker's work
        (cluster/host.py): nothing of another party's comes this way."""
        if name not in self._evaluators:
            self._evaluators[name] = evaluator_of(self._task, pickle.loads(judging.data))  # noqa: S301
        return self._evaluators[name]


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
