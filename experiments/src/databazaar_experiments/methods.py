"""The four methods of the paper's comparison, each for a batch of seeds, giving plain arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Engine, VectorizedEngine
from databazaar.learning.utilities import Evaluator
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.loop import play
from databazaar.market.run import Progress
from databazaar.roster import RoundBudget
from databazaar.samplers import OSMD, Sampler, Uniform
from databazaar.samplers.protocol import Draws, State, Vector, refuse_too_many
from databazaar.valuation.method import Context
from databazaar.valuation.result import Tally, ValuationResult
from databazaar.valuation.stopping import BackCheck, GhorbaniZou, MaxPermutations, Rule
from databazaar_experiments.fed_shapley import FedShapley
from databazaar_experiments.first_layer import FirstLayerFedShapley
from databazaar_experiments.g_shapley import GShapley, ignore_share
from databazaar_experiments.images import ImageMarket
from databazaar_experiments.lockstep import run_in_lockstep
from databazaar_experiments.mixture import MixtureMarket
from databazaar_experiments.stacks import PAPER_STACKS
from databazaar_experiments.stacks.cnn import evaluator_for

PAPER_METHODS = ("osmd", "uniform", "g-shapley", "fedsv")
SHAPLEY = ("g-shapley", "fedsv")
GPU_ROWS = 500
"""Permutations that a GPU walks at a time, of all seeds: a CUDA graph of 512 rows holds them."""
Floats = NDArray[np.float64]
PaperMarket = ImageMarket | MixtureMarket
Measure = Callable[[Tensor], Floats]
"""Parameters of one run → what is plotted along its training."""
OnShare = Callable[[float], None]


@dataclass(frozen=True)
class OSMDOncePerRound(OSMD):
    """Who is drawn twice in a round counts once in the estimate."""

    kind: ClassVar[str] = "osmd-once-per-round"

    def update(self, state: State, draws: Draws, gains: Vector, round_budget: RoundBudget) -> State:
        drawn = draws.tolist()
        again = [place for place, provider in enumerate(drawn) if provider in drawn[:place]]
        once = gains.copy()
        once[again] = 0.0
        return super().update(state, draws, once, round_budget)


@dataclass(frozen=True)
class OSMDWithoutReplacement(OSMD):
    """OSMD whose draws of a round are of different providers, one after the other in proportion to p. The estimate
    stays gain/(K p), which is then no longer unbiased: whoever is likely is drawn less often than K p times."""

    kind: ClassVar[str] = "osmd-without-replacement"

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        p = self.probabilities(state, round_budget)
        refuse_too_many(size, len(p))
        draws: Draws = rng.choice(len(p), size, replace=False, p=p / p.sum())
        return draws


OSMD_BY_REPEATS = {"count": OSMD, "once": OSMDOncePerRound, "never": OSMDWithoutReplacement}


@dataclass
class Measurement:
    """Pay per seed and provider; what was measured along training, per seed; and the cost in seconds and calls."""

    seeds: list[int]
    pay: Floats
    rounds: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    curve: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    seconds: float = 0.0
    permutations: Floats = field(default_factory=lambda: np.zeros(0))
    stopped: str = ""


def run_method(
    method: str,
    market: PaperMarket,
    seeds: Sequence[int],
    device: str,
    on_share: OnShare = ignore_share,
    engine: VectorizedEngine | None = None,
) -> Measurement:
    """One method for all the seeds. `on_share` is called with the share that is done."""
    begun = time.perf_counter()
    if engine is None:
        task, where = market.consumer(0).task, torch.device(device)
        engine = VectorizedEngine(task, market.providers, where, stacks=PAPER_STACKS)
    if method in SHAPLEY:
        measurement = _value(method, market, seeds, engine, on_share)
    else:
        measurement = _train(method, market, seeds, engine, on_share)
    if engine.device.type == "cuda":
        torch.cuda.synchronize()
    measurement.seconds = time.perf_counter() - begun
    return measurement


def _train(
    method: str, market: PaperMarket, seeds: Sequence[int], engine: VectorizedEngine, on_share: OnShare
) -> Measurement:
    """OSMD or uniform sampling: all seeds train in lockstep."""
    sampler, measure = _sampler(method, market), _measure(market, engine.device)
    last = len(seeds) - 1

    def train(place: int, seed: int, engine: Engine, evaluator: Evaluator) -> tuple[list[int], _Curve]:
        arbiter = Arbiter(market.consumer(seed), market.providers, sampler, engine=engine, seed=seed)
        curve = _Curve(market, measure, arbiter.parameters.to(engine.device))
        if place == last:  # all seeds are in the same round
            curve.on_share = on_share
        run = arbiter.begin(Accounts(arbiter.rules), curve, evaluator)
        play(run, engine)
        return [run.accounts.book.pay.get(provider.id, 0) for provider in market.providers], curve

    evaluator = evaluator_for(market.consumer(seeds[0]), engine.device)
    trained = run_in_lockstep([partial(train, *each) for each in enumerate(seeds)], engine, evaluator)
    pay, curves = zip(*trained, strict=True)
    values = np.array([curve.values for curve in curves])
    return Measurement(list(seeds), np.array(pay, dtype=float), np.array(curves[0].rounds), values)


class _Curve:
    """Measures one run along its training; the mixture's curve begins before the first round."""

    def __init__(self, market: PaperMarket, measure: Measure, start: Tensor) -> None:
        self.last, self.measure = market.settings.rounds, measure
        self.points = _points(self.last)
        self.on_share: OnShare = ignore_share
        self.rounds: list[int] = []
        self.values: list[Floats] = []
        if isinstance(market, MixtureMarket):
            self._add(0, start)

    def __call__(self, progress: Progress) -> None:
        if progress.round in self.points:
            self._add(progress.round, progress.params)
        self.on_share(progress.round / self.last)

    def _add(self, round_: int, params: Tensor) -> None:
        self.rounds.append(round_)
        self.values.append(self.measure(params))


def _points(rounds: int) -> set[int]:
    """Where a curve is measured: after the first round, and fifty steps along the way."""
    return {1, *(round(rounds * i / 50) for i in range(1, 51))} - {0}


def _sampler(method: str, market: PaperMarket) -> Sampler:
    settings = market.settings
    if method == "uniform":
        return Uniform(replacement=settings.uniform == "with replacement")
    return OSMD_BY_REPEATS[settings.repeats](settings.eta, settings.alpha)


def _measure(market: PaperMarket, device: torch.device) -> Measure:
    """Test accuracy, or for the mixture ‖w − w_1‖."""
    if isinstance(market, MixtureMarket):
        truth = market.truth.to(device)
        return lambda w: np.array(float((w - truth).norm()))
    tester = replace(market.consumer(0), holdout=market.test, utility="accuracy")
    evaluator = evaluator_for(tester, device)
    return lambda w: np.array(evaluator.score(w[None]).utility[0])


def _value(
    method: str, market: PaperMarket, seeds: Sequence[int], engine: VectorizedEngine, on_share: OnShare
) -> Measurement:
    settings = market.settings
    value = _g_shapley if method == "g-shapley" else _fed_shapley
    results = value(market, seeds, engine, on_share)
    budget = settings.per_round * settings.rounds
    pay = np.array([list(result.payouts(budget, settings.pay).values()) for result in results], dtype=float)
    permutations = np.array([result.cost.permutations for result in results], dtype=float)
    return Measurement(list(seeds), pay, permutations=permutations, stopped=results[-1].stopped)


def _g_shapley(
    market: PaperMarket, seeds: Sequence[int], engine: VectorizedEngine, on_share: OnShare
) -> list[ValuationResult]:
    """The permutations of all seeds advance in lockstep; a seed that has stopped leaves the stack."""
    batch = min(100, max(20, GPU_ROWS // len(seeds))) if engine.device.type == "cuda" else 25
    rule, first = _g_rule(market.settings), market.settings.g_credits_first
    methods = [GShapley(stop=rule, credit_first=first, seed=seed, batch=batch) for seed in seeds]
    return _valued(methods, market, engine, on_share)


def _fed_shapley(
    market: PaperMarket, seeds: Sequence[int], engine: VectorizedEngine, on_share: OnShare
) -> list[ValuationResult]:
    """All seeds train in lockstep."""
    settings = market.settings
    stop = BackCheck(settings.fed_back_check, settings.fed_tolerance) | MaxPermutations(settings.fed_max_permutations)
    return _valued([FirstLayerFedShapley(stop=stop, seed=seed) for seed in seeds], market, engine, on_share)


def _valued(
    methods: Sequence[GShapley | FedShapley], market: PaperMarket, engine: VectorizedEngine, on_share: OnShare
) -> list[ValuationResult]:
    """Runs of a method with several seeds. They share the evaluator, which is the same for all."""
    providers, on_seed_share = tuple(market.providers), _mean_share(len(methods), on_share)

    def value(place: int, method: GShapley | FedShapley, engine: Engine, evaluator: Evaluator) -> ValuationResult:
        method = replace(method, progress=partial(on_seed_share, place))
        return method.value(Context(market.consumer(method.seed), providers, engine, Tally(), evaluator))

    evaluator = evaluator_for(market.consumer(methods[0].seed), engine.device)
    return run_in_lockstep([partial(value, *each) for each in enumerate(methods)], engine, evaluator)


def _mean_share(seeds: int, on_share: OnShare) -> Callable[[int, float], None]:
    """Takes each seed's share and passes on the mean, once for all seeds that are still at it."""
    shares = np.zeros(seeds)

    def on_seed_share(place: int, share: float) -> None:
        shares[place] = max(shares[place], share)
        if share >= 1 or not (shares[place + 1 :] < 1).any():
            on_share(float(shares.mean()))

    return on_seed_share


def _g_rule(settings: Any) -> Rule:
    criterion: Rule = (
        BackCheck(settings.g_back_check, settings.g_tolerance)
        if settings.g_criterion == "back-check"
        else GhorbaniZou(settings.g_tolerance)
    )
    return criterion | MaxPermutations(settings.g_max_permutations)
