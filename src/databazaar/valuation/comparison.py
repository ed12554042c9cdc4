"""All methods on one market: what each would pay whom, how sure that is, how far they agree, and what each costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Engine, make_engine
from databazaar.errors import BazaarError
from databazaar.learners import learner_for
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.method import METHODS, Method
from databazaar.valuation.result import Mode, ValuationResult, Vector
from databazaar.valuation.stopping import Rule

Progress = Callable[[str, int], None]
"""Called with a method and a seed when that run is done."""
FEWEST_SEEDS = 3


@dataclass(frozen=True, eq=False)
class Stability:
    """Payouts over several seeds. `low`, at zero or above, and `high` hold the mean payout with the given confidence.

    `best_rank` and `worst_rank` (1 is the best paid) are where each provider may end up with one more seed.
    """

    providers: tuple[str, ...]
    seeds: int
    confidence: float
    mean: Vector
    low: Vector
    high: Vector
    best_rank: NDArray[np.int64]
    worst_rank: NDArray[np.int64]

    @property
    def survives(self) -> NDArray[np.bool_]:
        """Whose rank would survive another seed."""
        return np.asarray(self.best_rank == self.worst_rank)

    def to_dict(self) -> dict[str, Any]:
        arrays = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        told = {"providers": list(self.providers), "seeds": self.seeds, "confidence": self.confidence}
        return {**told, **arrays, "survives": self.survives.tolist()}


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

    @property
    def ranked(self) -> list[int]:
        """Providers in the order that figures and tables share: best paid by the first method first."""
        order: list[int] = np.argsort(-self.outcomes[0].payouts.mean(0), kind="stable").tolist()
        return order

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
    methods: Sequence[str] = ("osmd", "uniform", "loo"),
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

    `options` holds further settings by method, as in {"tmc": {"stop": MaxPermutations(50)}}. `limit` ends each
    run of a method that can be ended early.
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
        if isinstance(engine, str):  # one for all runs that name no other, and ask for the same
            rows = learner_for(consumer.model).rows
            made = make_engine(engine, consumer.task.copied(), providers, device, rows)
            stack.callback(made.close)
            same = [run.engine == engine and run.learner_in(consumer).rows == rows for run, *_ in planned]
            planned = [
                [replace(run, engine=made) for run in runs] if shares else runs
                for runs, shares in zip(planned, same, strict=True)
            ]
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
    """Spearman's rank correlation between rows; NaN where all values of a row are equal.

    >>> spearman(np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 9.0], [3.0, 2.0, 1.0]])).round(2)
    array([[ 1.  ,  0.87, -1.  ],
           [ 0.87,  1.  , -0.87],
           [-1.  , -0.87,  1.  ]])
    """
    import pandas as pd

    return pd.DataFrame(rows.T).corr("spearman").to_numpy()


def stability(
    providers: Sequence[str], payouts: Sequence[Sequence[int]] | NDArray[Any], confidence: float = 0.95
) -> Stability:
    """From payouts [seeds, providers], three seeds or more: two that happen to agree would promise everything.

    The interval of a mean is Student's, m ± t s/√S, without what lies below zero, as nobody is paid less. Provider i
    is sure to be paid more than j in another run if the prediction interval of the difference of their payouts,
    d ± t s_d √(1 + 1/S), lies above zero. A provider's best rank counts those sure to be above it, its worst rank those
    sure to be below. Each pair is judged by itself: with many providers, some pair will fall outside its interval.

    >>> stability(["a", "b", "c"], [[50, 26, 24], [51, 24, 25], [50, 25, 25]]).survives
    array([ True, False, False])
    """
    paid = np.asarray(payouts, dtype=np.float64)
    if paid.ndim != 2 or len(paid) < FEWEST_SEEDS or paid.shape[1] != len(providers):
        raise BazaarError(f"stability needs the payouts of at least three seeds, [seeds, {len(providers)}]")
    if not 0 < confidence < 1:
        raise BazaarError(f"confidence = {confidence} must lie between 0 and 1: 0.95 is usual")
    seeds = len(paid)
    t = student_quantile(confidence, seeds - 1)
    mean = paid.mean(0)
    margin = t * paid.std(0, ddof=1) / np.sqrt(seeds)
    gaps = mean[:, None] - mean
    centred = paid - mean
    products = centred.T @ centred / (seeds - 1)
    variances = np.diag(products)[:, None] + np.diag(products) - 2 * products
    above = gaps > t * np.sqrt(np.maximum(variances, 0.0) * (1 + 1 / seeds))
    best, worst = 1 + above.sum(0), len(providers) - above.sum(1)
    return Stability(
        tuple(providers), seeds, confidence, mean, np.maximum(mean - margin, 0.0), mean + margin, best, worst
    )


@lru_cache
def student_quantile(confidence: float, freedom: int) -> float:
    """t with P(|T| ≤ t) = confidence. With T = √ν tan θ the density is that of cos^{ν−1} θ, which is summed up.

    >>> round(student_quantile(0.95, 9), 3)
    2.262
    """
    angle = np.linspace(0.0, np.pi / 2, 200_001)
    density = np.cos(angle) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(np.sqrt(freedom) * np.tan(np.interp(confidence, mass / mass[-1], angle)))
