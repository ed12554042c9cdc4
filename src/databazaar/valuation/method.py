"""What every valuation method is: frozen settings that can be run on a market, known by a name; and the context that
its run works in.

A method from another package is a subclass of `Method` with a `kind`, declared in that package's pyproject.toml:

    [project.entry-points."databazaar.methods"]
    banzhaf = "acme_values:Banzhaf"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Mean
from databazaar.engines import Ask, Engine, Replies, make_engine, query_all
from databazaar.errors import BazaarError
from databazaar.learners import Learner, learner_for
from databazaar.learning.task import step_at
from databazaar.learning.utilities import Evaluator
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.registry import Registry
from databazaar.valuation.result import Tally, ValuationResult
from databazaar.valuation.stopping import Rule

METHODS = Registry(
    "method",
    {
        "osmd": "databazaar.market.methods:MarketMethod",
        "uniform": "databazaar.market.methods:UniformMarketMethod",
        "uniform-without-replacement": "databazaar.market.methods:WithoutReplacementMethod",
        "market": "databazaar.market.methods:OwnMarketMethod",
        "tmc": "databazaar.valuation.monte_carlo:TMCShapley",
        "loo": "databazaar.valuation.exact:LeaveOneOut",
        "exact": "databazaar.valuation.exact:ExactShapley",
        "in-run": "databazaar.valuation.in_run:InRunShapley",
    },
)
"""Every method by its kind, the name that the command line knows it by."""


@dataclass(frozen=True, eq=False)
class Context:
    """A consumer and its providers, ready to be asked and scored in batches. Valuations of consumers that judge alike
    may share an evaluator."""

    consumer: Consumer
    providers: tuple[Provider, ...]
    engine: Engine
    tally: Tally
    shared: Evaluator | None = None

    @classmethod
    @contextmanager
    def open(
        cls,
        consumer: Consumer,
        providers: Sequence[Provider],
        engine: str | Engine,
        device: str,
        learner: Learner | None = None,
    ) -> Iterator[Context]:
        """With an engine by name, it is made for this valuation and this learner, or the model's own, and closed after
        it."""
        tally = Tally()
        if not providers:
            raise BazaarError("there is nobody to value: give at least one provider")
        if len({provider.id for provider in providers}) != len(providers):
            raise BazaarError("two providers have the same id: give each an id of its own")
        with ExitStack() as stack:
            if isinstance(engine, str):
                rows = (learner or learner_for(consumer.model)).rows
                engine = make_engine(engine, consumer.task.copied(), providers, device, rows)
                stack.callback(engine.close)
            stack.enter_context(consumer.limited_threads())
            yield cls(consumer, tuple(providers), engine, tally)

    @cached_property
    def evaluator(self) -> Evaluator:
        """What scores vectors of parameters."""
        return self.shared or self.consumer.evaluator(self.engine.device)

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


@dataclass(frozen=True, kw_only=True)
class Method:
    """Base of all methods: write `value`, or `run` where a method brings a market of its own.

    `engine` is a name, "vectorized" or "loop", or an Engine of your own, which is then not closed.
    """

    seed: int = 0
    engine: str | Engine = "vectorized"
    device: str = "auto"

    kind: ClassVar[str]
    paid_by_access: ClassVar[bool] = False
    """Whether its values are payments already, in minor units."""
    draws_without_replacement: ClassVar[bool] = False
    """Whether it draws a round's providers at most once each."""
    limit_argument: ClassVar[str | None] = None
    """Which of its settings is a stopping rule that ends the whole method; None where it has an end of its own."""

    def run(self, consumer: Consumer, providers: Sequence[Provider]) -> ValuationResult:
        """The values of these providers to this consumer."""
        self.validate(consumer, providers)
        with Context.open(consumer, providers, self.engine, self.device, self.learner_in(consumer)) as context:
            return self.value(context)

    def value(self, context: Context) -> ValuationResult:
        raise NotImplementedError

    def validate(self, consumer: Consumer, providers: Sequence[Provider]) -> None:
        """Refuses a market on which it cannot work, before anything is run."""
        if self.draws_without_replacement and consumer.per_round > len(providers) > 0:
            raise BazaarError(
                f"{self.kind} draws each provider at most once a round, and per_round = {consumer.per_round} is more "
                f"than the {len(providers)} providers: lower per_round, or leave {self.kind} out"
            )

    def learner_in(self, consumer: Consumer) -> Learner:
        """What trains the models."""
        return learner_for(consumer.model)

    def limited(self, limit: Rule) -> Self:
        """The same method, ended by this rule too, where it can be ended early."""
        if self.limit_argument is None:
            return self
        own: Rule | None = getattr(self, self.limit_argument)
        changed: dict[str, Any] = {self.limit_argument: limit if own is None else own | limit}
        return replace(self, **changed)
