"""Several runs in lockstep: what all of them ask an engine or an evaluator at a moment is computed as one stack.

Each run is a function of an engine and an evaluator, which knows nothing of the others. It has a thread of its own, but
only one thread works at any time: a run works until it asks for something, and when all of them wait, their questions
are answered together. The runs are independent; each ends as if it were alone, up to float tolerance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from databazaar.engines import Ask, Engine, Replies, query_all
from databazaar.learning.inputs import Inputs
from databazaar.learning.utilities import Evaluator, Scores

T = TypeVar("T")
Job = Callable[[Engine, Evaluator], T]


def run_in_lockstep(jobs: Sequence[Job[T]], engine: Engine, evaluator: Evaluator) -> list[T]:
    """What each job comes to, in order. The first that fails says why, once all have ended."""
    return _Lockstep(engine, evaluator).run(jobs)


@dataclass(eq=False)
class _Need:
    """What a run waits for: the replies to asks, or the scores of stacked parameters."""

    asks: Sequence[Ask] | None = None
    stack: Tensor | None = None
    answer: Any = None
    failure: BaseException | None = None
    met: bool = False


class _EndedError(Exception):
    """Somebody has interrupted all runs."""


class _Lockstep:
    def __init__(self, engine: Engine, evaluator: Evaluator) -> None:
        self._engine, self._evaluator = engine, evaluator
        self._turn = threading.Condition()
        self._needs: list[_Need] = []
        self._going, self._over = 0, False

    def run(self, jobs: Sequence[Job[T]]) -> list[T]:
        results: dict[int, T] = {}
        failures: dict[int, BaseException] = {}

        def play(place: int, job: Job[T]) -> None:
            with self._turn:
                try:
                    results[place] = job(_SharedEngine(self), _SharedEvaluator(self))
                except BaseException as reason:
                    failures[place] = reason
                self._going -= 1
                self._turn.notify_all()

        threads = [threading.Thread(target=play, args=each, daemon=True) for each in enumerate(jobs)]
        before = torch.get_num_threads()
        with self._turn:
            self._going = len(threads)
            for thread in threads:
                thread.start()
            try:
                while self._going:
                    self._turn.wait_for(lambda: len(self._needs) == self._going)
                    self._meet()
            finally:
                self._over = True
                self._turn.notify_all()
        for thread in threads:
            thread.join()
        torch.set_num_threads(before)  # runs that limit them end in any order
        if failures:
            raise failures[min(failures)]
        return [results[place] for place in range(len(jobs))]

    def wait_for(self, need: _Need) -> Any:
        """Called by a run, in its turn: gives the turn to the others until the need is met."""
        self._needs.append(need)
        self._turn.notify_all()
        self._turn.wait_for(lambda: need.met or self._over)
        if need.failure is not None:
            raise need.failure
        if not need.met:
            raise _EndedError
        return need.answer

    def _meet(self) -> None:
        needs, self._needs = self._needs, []
        try:
            self._answer([need for need in needs if need.asks is not None])
            self._score([need for need in needs if need.stack is not None])
        except Exception as reason:
            for need in needs:
                need.failure = reason
        for need in needs:
            need.met = True
        self._turn.notify_all()

    def _answer(self, needs: Sequence[_Need]) -> None:
        asks = [ask for need in needs for ask in need.asks or ()]
        replies = iter(query_all(self._engine, asks) if asks else ())
        for need in needs:
            need.answer = [next(replies) for _ in need.asks or ()]

    def _score(self, needs: Sequence[_Need]) -> None:
        stacks = [need.stack for need in needs if need.stack is not None]
        if not stacks:
            return
        scores = self._evaluator.score(stacks[0] if len(stacks) == 1 else torch.cat(stacks))
        ends = np.cumsum([len(stack) for stack in stacks])[:-1]
        utilities = np.split(scores.utility, ends)
        losses = [None] * len(stacks) if scores.loss is None else np.split(scores.loss, ends)
        for need, utility, loss in zip(needs, utilities, losses, strict=True):
            need.answer = Scores(utility, loss)


class _SharedEngine(Engine):
    """The engine as one of the runs sees it."""

    def __init__(self, lockstep: _Lockstep) -> None:
        self._lockstep = lockstep
        self.device = lockstep._engine.device

    def query(self, ask: Ask) -> Replies:
        return self.query_all([ask])[0]

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        replies: list[Replies] = self._lockstep.wait_for(_Need(asks=asks))
        return replies


class _SharedEvaluator(Evaluator):
    """The evaluator as one of the runs sees it."""

    def __init__(self, lockstep: _Lockstep) -> None:
        self._lockstep = lockstep
        vars(self).update(vars(lockstep._evaluator))

    def score(self, stack: Tensor) -> Scores:
        scores: Scores = self._lockstep.wait_for(_Need(stack=stack))
        return scores

    def _outputs(self, stack: Tensor, x: Inputs) -> Tensor:
        return self._lockstep._evaluator._outputs(stack, x)
