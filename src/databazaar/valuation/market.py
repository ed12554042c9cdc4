"""What all methods share: the consumer's model and utility, the providers' oracles, and a count of their use."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Ask, Engine, Replies, VectorizedEngine, make_engine
from databazaar.engines.scoring import evaluator_for
from databazaar.errors import BazaarError
from databazaar.learning.task import step_at
from databazaar.learning.utilities import Evaluator
from databazaar.market.wishes import Wish, drive
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.result import Trained, ValuationResult
from databazaar.valuation.tally import Tally

Valuing = Generator[Ask | Tensor | Wish, Any, ValuationResult]
"""A valuation that yields its wishes and is sent the answers."""


@dataclass(frozen=True, eq=False)
class Market:
    """A consumer and its providers, ready to be asked and scored in batches."""

    consumer: Consumer
    providers: tuple[Provider, ...]
    engine: Engine
    evaluator: Evaluator
    tally: Tally

    @classmethod
    @contextmanager
    def open(
        cls, consumer: Consumer, providers: Sequence[Provider], engine: str | Engine, device: str
    ) -> Iterator[Market]:
        """With an engine by name, it is made for this valuation, and closed after it."""
        tally = Tally()
        if not providers:
            raise BazaarError("there is nobody to value: give at least one provider")
        if len({provider.id for provider in providers}) != len(providers):
            raise BazaarError("two providers have the same id: give each an id of its own")
        own = isinstance(engine, str)
        if isinstance(engine, str):
            engine = make_engine(engine, copy.deepcopy(consumer.task), providers, device)
        try:
            yield cls(consumer, tuple(providers), engine, evaluator_for(consumer, engine.device), tally)
        finally:
            if own:
                engine.close()

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(provider.id for provider in self.providers)

    def start(self) -> Tensor:
        """The parameters before any training, on the engine's device."""
        return self.consumer.initial_parameters().to(self.engine.device)

    def step(self, round: int) -> float:
        return step_at(self.consumer.step, round)

    def ask(self, asks: Sequence[Ask]) -> list[Replies]:
        """Answers in the order of the asks, computed as one stack where the engine can."""
        self.tally.oracle_calls += sum(len(ask.providers) for ask in asks)
        if isinstance(self.engine, VectorizedEngine):
            return self.engine.query_many(asks)
        return [self.engine.query(ask) for ask in asks]

    def answer(self, valuing: Valuing) -> ValuationResult:
        """Grants a valuation's wishes one by one, to its end."""
        result: ValuationResult = drive(valuing, self.engine, self.evaluator)
        return result

    def score(self, stack: Tensor) -> NDArray[np.float64]:
        """The utility of every row."""
        self.tally.evaluations += len(stack)
        return self.evaluator.score(stack).utility

    def finished(self, result: ValuationResult, method: str | None = None) -> ValuationResult:
        """The result with all that was spent since the market opened."""
        cost = self.tally.cost(permutations=result.cost.permutations)
        return replace(result, method=method or result.method, cost=cost)

    def trained(self, params: Tensor) -> Trained:
        return Trained(params.detach().cpu(), float(self.score(params[None])[0]))


def mean_update(replies: Replies, asked: Sequence[int]) -> Tensor:
    """The mean of the valid updates, as the arbiter averages them; zero where there is none."""
    valid = [row for row, provider in enumerate(asked) if provider not in replies.failures]
    if not valid:
        return torch.zeros_like(replies.updates[0])
    return replies.updates[valid].sum(0) / len(valid)
