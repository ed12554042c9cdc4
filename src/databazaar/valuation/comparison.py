"""All methods on one market: what each would pay whom, how far they agree, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Engine, make_engine
from databazaar.errors import BazaarError
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.method import METHODS, Method
from databazaar.valuation.rank_stability import FEWEST_SEEDS, Stability, stability
from databazaar.valuation.result import Mode, ValuationResult
from databazaar.valuation.stopping import Rule

Progress = Callable[[str, int], None]
"""Called with a method and a seed when that run is done."""


@dataclass(frozen=True, eq=False)
class MethodOutcome:
    """One method over all seeds. `payouts` is [seeds, providers]; `stability` needs three seeds or more."""

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
    outcomes: tuple[MethodOutcome, ...]
    rank_correlation: NDArray[np.float64]

    def __getitem__(self, method: str) -> MethodOutcome:
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
    limit: Rule | None = None,
    progress: Progress = lambda method, seed: None,
) -> Comparison:
    """Runs every method with seeds seed, seed + 1, … and pays out the consumer's budget by its values.

    `options` holds further settings by method, as in {"g-shapley": {"stop": MaxPermutations(50)}}. `limit` ends each
    run of a method that can be ended early. `progress` is called with a method and a seed when that run is done.
    """
    options, known = options or {}, METHODS.kinds()
    unknown = [name for name in [*methods, *options] if name not in known]
    if unknown or not methods:
        raise BazaarError(f"method {', '.join(unknown) or '(none)'} is unknown: use some of {', '.join(known)}")
    if len(set(methods)) != len(methods):
        raise BazaarError("a method is named twice: name each once")
    if seeds < 1:
        raise BazaarError(f"seeds = {seeds} must be at least 1")
    every_seed = tuple(range(seed, seed + seeds))
    planned = []
    for name in methods:
        given = {"engine": engine, "device": device, **options.get(name, {})}
        runs: list[Method] = [METHODS.build({"kind": name, "seed": s, **given}) for s in every_seed]
        planned.append([run if limit is None else run.limited(limit) for run in runs])
    for runs in planned:
        runs[0].validate(consumer, providers)
    ids = tuple(provider.id for provider in providers)
    outcomes = []
    with ExitStack() as stack:
        if isinstance(engine, str):  # one for all runs that name no other
            made = make_engine(engine, consumer.task.copied(), providers, device)
            stack.callback(made.close)
            planned = [[replace(run, engine=made) if run.engine == engine else run for run in runs] for runs in planned]
        for name, runs in zip(methods, planned, strict=True):
            results = []
            for run in runs:
                results.append(run.run(consumer, providers))
                progress(run.kind, run.seed)
            amounts = [
                result.values if run.paid_by_access else list(result.payouts(consumer.budget, mode).values())
                for run, result in zip(runs, results, strict=True)
            ]
            paid = np.array(amounts, dtype=np.int64)
            sure = stability(ids, paid) if seeds >= FEWEST_SEEDS else None
            outcomes.append(MethodOutcome(name, tuple(results), paid, sure))
    means = np.array([outcome.payouts.mean(0) for outcome in outcomes])
    return Comparison(ids, int(consumer.budget), mode, every_seed, tuple(outcomes), spearman(means))


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
