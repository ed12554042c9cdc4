"""All methods on one market: what each would pay whom, how far they agree, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Engine
from databazaar.errors import BazaarError
from databazaar.market.arbiter import Arbiter
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.samplers import Sampler, Uniform
from databazaar.valuation.exact import exact_shapley
from databazaar.valuation.fed_shapley import fed_shapley
from databazaar.valuation.g_shapley import g_shapley
from databazaar.valuation.gtg_shapley import gtg_shapley
from databazaar.valuation.leave_one_out import leave_one_out
from databazaar.valuation.monte_carlo import tmc_shapley
from databazaar.valuation.payouts import Mode
from databazaar.valuation.result import Trained, ValuationResult
from databazaar.valuation.stability import Stability, stability
from databazaar.valuation.tally import Tally

Method = Callable[..., ValuationResult]
"""Takes a consumer, providers, seed, engine and device, and the options of the method's own function."""


def market_run(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    sampler: Sampler | None = None,
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
) -> ValuationResult:
    """A run of the market itself, as a valuation: a provider's value is its pay. OSMD unless a sampler is given."""
    tally = Tally()
    arbiter = Arbiter(consumer, providers, sampler, engine=engine, device=device, seed=seed)
    report = arbiter.run()
    for played in report.rounds:
        asked = len({access.provider for access in played.accesses})
        tally.oracle_calls += asked
        tally.evaluations += asked + 1
    tally.evaluations += 1
    tally.trainings = 1
    pay = np.array([payout.pay for payout in report.payouts], dtype=np.float64)
    ids = tuple(payout.provider for payout in report.payouts)
    trained = Trained(arbiter.parameters, report.final_utility)
    method = str(report.sampler["kind"])
    return ValuationResult(method, ids, pay, np.zeros(len(ids)), report.message, tally.cost(), trained)


def uniform_run(consumer: Consumer, providers: Sequence[Provider], **options: Any) -> ValuationResult:
    """The market with uniform sampling without replacement: everybody is paid alike, but for luck."""
    return market_run(consumer, providers, sampler=Uniform(replacement=False), **options)


def fed_shapley_exact(consumer: Consumer, providers: Sequence[Provider], **options: Any) -> ValuationResult:
    """Federated Shapley over all coalitions of every round."""
    return fed_shapley(consumer, providers, exact=True, **options)


METHODS: dict[str, Method] = {
    "osmd": market_run,
    "uniform": uniform_run,
    "g-shapley": g_shapley,
    "fedsv": fed_shapley,
    "fedsv-exact": fed_shapley_exact,
    "gtg": gtg_shapley,
    "tmc": tmc_shapley,
    "loo": leave_one_out,
    "exact": exact_shapley,
}
"""Every method by the name that the command line knows it by."""

PAID_BY_ACCESS = ("osmd", "uniform")
"""Methods whose values are payments already."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method over all seeds. `payouts` is [seeds, providers]; `stability` needs two seeds or more."""

    method: str
    results: tuple[ValuationResult, ...]
    payouts: NDArray[np.int64]
    stability: Stability | None

    def mean(self, cost: str) -> float:
        """The mean over seeds of one of the costs, such as "seconds" or "oracle_calls"."""
        return float(np.mean([getattr(result.cost, cost) for result in self.results]))

    @property
    def final_utility(self) -> float | None:
        """The mean utility of the trained models, None for a method that trains none."""
        trained = [result.trained.utility for result in self.results if result.trained is not None]
        return float(np.mean(trained)) if trained else None

    def to_dict(self) -> dict[str, Any]:
        costs = ("seconds", "oracle_calls", "utility_evaluations", "trainings", "permutations")
        return {
            "method": self.method,
            "payouts": self.payouts.tolist(),
            "mean_payouts": self.payouts.mean(0).tolist(),
            **{cost: self.mean(cost) for cost in costs},
            "final_utility": self.final_utility,
            "stability": None if self.stability is None else self.stability.to_dict(),
            "results": [result.to_dict() for result in self.results],
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods side by side. `rank_correlation` is Spearman's, of mean payouts; NaN where a method pays all alike."""

    providers: tuple[str, ...]
    budget: int
    mode: Mode
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    rank_correlation: NDArray[np.float64]

    def __getitem__(self, method: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.method == method)

    def to_dict(self) -> dict[str, Any]:
        matrix = [[None if np.isnan(r) else float(r) for r in row] for row in self.rank_correlation]
        return {
            "providers": list(self.providers),
            "budget": self.budget,
            "mode": self.mode,
            "seeds": list(self.seeds),
            "methods": [outcome.to_dict() for outcome in self.outcomes],
            "rank_correlation": matrix,
        }


def compare(
    consumer: Consumer,
    providers: Sequence[Provider],
    methods: Sequence[str] = ("osmd", "uniform", "g-shapley", "fedsv", "loo"),
    *,
    seed: int = 0,
    seeds: int = 1,
    mode: Mode = "positive",
    engine: str | Engine = "vectorized",
    device: str = "auto",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    tell: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Runs every method with seeds seed, seed + 1, … and pays out the consumer's budget by its values.

    `options` holds further arguments by method, as in {"g-shapley": {"stop": MaxPermutations(50)}}. `tell` is called
    with a method and a seed before each run.
    """
    unknown = [name for name in [*methods, *(options or {})] if name not in METHODS]
    if unknown or not methods:
        raise BazaarError(f"method {', '.join(unknown) or '(none)'} is unknown: use some of {', '.join(METHODS)}")
    if len(set(methods)) != len(methods):
        raise BazaarError("a method is named twice: name each once")
    if seeds < 1:
        raise BazaarError(f"seeds = {seeds} must be at least 1")
    ids = tuple(provider.id for provider in providers)
    outcomes = []
    for name in methods:
        results = []
        for s in range(seed, seed + seeds):
            if tell is not None:
                tell(name, s)
            extra = (options or {}).get(name, {})
            results.append(METHODS[name](consumer, providers, seed=s, engine=engine, device=device, **extra))
        paid = np.array([_pay(name, result, consumer.budget, mode) for result in results], dtype=np.int64)
        sure = stability(ids, paid) if seeds > 1 else None
        outcomes.append(Outcome(name, tuple(results), paid, sure))
    means = np.array([outcome.payouts.mean(0) for outcome in outcomes])
    every_seed = tuple(range(seed, seed + seeds))
    return Comparison(ids, int(consumer.budget), mode, every_seed, tuple(outcomes), spearman(means))


def _pay(method: str, result: ValuationResult, budget: int, mode: Mode) -> list[int]:
    if method in PAID_BY_ACCESS:
        return [int(value) for value in result.values]
    return list(result.payouts(budget, mode).values())


def spearman(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation between rows; equal values share their mean rank.

    >>> spearman(np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 9.0], [3.0, 2.0, 1.0]])).round(2)
    array([[ 1.  ,  0.87, -1.  ],
           [ 0.87,  1.  , -0.87],
           [-1.  , -0.87,  1.  ]])
    """
    below = (rows[:, None, :] < rows[:, :, None]).sum(2)
    equal = (rows[:, None, :] == rows[:, :, None]).sum(2)
    ranks = below + (equal - 1) / 2
    centred = ranks - ranks.mean(1, keepdims=True)
    norms = np.sqrt((centred**2).sum(1))
    with np.errstate(invalid="ignore"):
        return np.asarray(centred @ centred.T / np.outer(norms, norms))
