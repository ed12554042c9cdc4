"""What all methods share: the consumer's model and utility, the providers' oracles, and a count of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Mean
from databazaar.engines import Ask, Engine, Replies, make_engine, query_all
from databazaar.errors import BazaarError
from databazaar.learning.task import step_at
from databazaar.learning.utilities import Evaluator
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.result import Tally, ValuationResult


@dataclass(frozen=True, eq=False)
class Context:
    """A consumer and its providers, ready to be asked and scored in batches.

    `progress` is called now and then with the share of the work that is done, about.
    """

    consumer: Consumer
    providers: tuple[Provider, ...]
    engine: Engine
    evaluator: Evaluator
    tally: Tally
    progress: Callable[[float], None] = lambda share: None

    @classmethod
    @contextmanager
    def open(
        cls, consumer: Consumer, providers: Sequence[Provider], engine: str | Engine, device: str
    ) -> Iterator[Context]:
        """With an engine by name, it is made for this valuation, and closed after it."""
        tally = Tally()
        if not providers:
            raise BazaarError("there is nobody to value: give at least one provider")
        if len({provider.id for provider in providers}) != len(providers):
            raise BazaarError("two providers have the same id: give each an id of its own")
        own = isinstance(engine, str)
        if isinstance(engine, str):
            engine = make_engine(engine, consumer.task.copied(), providers, device)
        try:
            with consumer.limited_threads():
                yield cls(consumer, tuple(providers), engine, consumer.evaluator(engine.device), tally)
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

    def moved(self, params: Tensor, updates: Tensor, round: int) -> Tensor:
        """The model after a round with these valid updates, one a provider: the mean, as the arbiter has it."""
        mean = Mean()
        _, move = mean.combine(mean.init(params), updates, self.step(round))
        return params + move

    def ask(self, asks: Sequence[Ask]) -> list[Replies]:
        """Answers in the order of the asks, computed as one stack where the engine can."""
        self.tally.oracle_calls += sum(len(ask.providers) for ask in asks)
        return query_all(self.engine, asks)

    def score(self, stack: Tensor) -> NDArray[np.float64]:
        """The utility of every row."""
        self.tally.utility_evaluations += len(stack)
        return self.evaluator.score(stack).utility

    def finished(self, result: ValuationResult, method: str | None = None) -> ValuationResult:
        """The result with all that was spent since the context was opened."""
        cost = self.tally.now(result.cost.permutations)
        return replace(result, method=method or result.method, cost=cost)
