"""What every valuation method is: frozen settings that can be run on a market, known by a name.

A method from another package is a subclass of `Method` with a `kind`, declared in that package's pyproject.toml:

    [project.entry-points."databazaar.methods"]
    banzhaf = "acme_values:Banzhaf"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, ParamSpec, Protocol, Self

from databazaar.engines import Engine
from databazaar.errors import BazaarError
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.registry import Registry
from databazaar.valuation.context import Context
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.stopping import Rule

P = ParamSpec("P")

METHODS = Registry(
    "method",
    {
        "osmd": "databazaar.market.methods:MarketMethod",
        "uniform": "databazaar.market.methods:UniformMarketMethod",
        "uniform-without-replacement": "databazaar.market.methods:WithoutReplacementMethod",
        "market": "databazaar.market.methods:OwnMarketMethod",
        "g-shapley": "databazaar.valuation.gradient:GShapley",
        "fedsv": "databazaar.valuation.federated:FedShapley",
        "fedsv-exact": "databazaar.valuation.federated:FedShapleyExact",
        "tmc": "databazaar.valuation.monte_carlo:TMCShapley",
        "loo": "databazaar.valuation.loo:LeaveOneOut",
        "exact": "databazaar.valuation.exact:ExactShapley",
    },
)
"""Every method by its kind, the name that the command line knows it by."""


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
        with Context.open(consumer, providers, self.engine, self.device) as context:
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

    def limited(self, limit: Rule) -> Self:
        """The same method, ended by this rule too, where it can be ended early."""
        if self.limit_argument is None:
            return self
        own: Rule | None = getattr(self, self.limit_argument)
        changed: dict[str, Any] = {self.limit_argument: limit if own is None else own | limit}
        return replace(self, **changed)


class MethodCall(Protocol[P]):
    """A method as one call, with its settings by keyword."""

    def __call__(
        self, consumer: Consumer, providers: Sequence[Provider], *args: P.args, **settings: P.kwargs
    ) -> ValuationResult:
        """The values of these providers to this consumer."""


def as_function(method: Callable[P, Method], name: str) -> MethodCall[P]:
    """A method as one call: a consumer, providers, and the method's settings by keyword."""

    def call(consumer: Consumer, providers: Sequence[Provider], *args: P.args, **settings: P.kwargs) -> ValuationResult:
        return method(*args, **settings).run(consumer, providers)

    market = inspect.signature(Method.run).parameters
    own = inspect.signature(method).parameters
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [market["consumer"], market["providers"], *own.values()], return_annotation="ValuationResult"
    )
    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__module__ = method.__doc__, method.__module__
    return call
