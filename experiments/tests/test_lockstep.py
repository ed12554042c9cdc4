"""Several runs in lockstep: each ends as if it were alone, from fewer and larger computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, Provider
from databazaar.engines import Ask, Engine, Replies, VectorizedEngine, query_all
from databazaar.learning.utilities import Evaluator
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.market.run import MarketRun
from databazaar.training.parameters import vector_of
from databazaar.valuation import BackCheck, MaxPermutations, ValuationResult
from databazaar.valuation.method import Context
from databazaar.valuation.result import Tally
from databazaar_experiments.fed_shapley import FedShapley
from databazaar_experiments.g_shapley import GShapley
from databazaar_experiments.lockstep import run_in_lockstep
from small_markets import torch_market

CPU = torch.device("cpu")
SEEDS = (0, 1, 2)


class Counting(Engine):
    """Another engine, which notes how many asks come at a time."""

    name, device = "counting", CPU

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self.together: list[int] = []

    def query(self, ask: Ask) -> Replies:
        return self.query_all([ask])[0]

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        self.together.append(len(asks))
        return query_all(self._inner, asks)


def test_seeds_in_lockstep_make_the_draws_that_they_make_alone() -> None:
    consumer, providers = torch_market(budget=60)
    engine = Counting(VectorizedEngine(consumer.task, providers, CPU))

    def train(seed: int, engine: Engine, evaluator: Evaluator) -> MarketRun:
        arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine=engine, seed=seed)
        run = arbiter.begin(Ledger(arbiter.rules), evaluator=evaluator)
        play(run, engine)
        return run

    runs = run_in_lockstep([partial(train, seed) for seed in range(4)], engine, consumer.evaluator(CPU))
    assert engine.together == [4] * 15
    for seed, run in enumerate(runs):
        alone = Arbiter(consumer, providers, OSMD(0.5, 0.1), device="cpu", seed=seed)
        report = alone.run()
        assert isinstance(run.accounts, Ledger)
        audit = audit_entries(run.accounts.store.entries())
        assert audit.ok and audit.closed, audit.message
        assert audit.record is not None
        drawn = [[access.provider for access in played.accesses] for played in audit.record.rounds]
        assert drawn == [[access.provider for access in played.accesses] for played in report.rounds]
        np.testing.assert_allclose(vector_of(run.state.model), alone.last_parameters, rtol=1e-4, atol=1e-5)


def valued(
    make: Callable[[int], FedShapley | GShapley], shares: list[float]
) -> tuple[list[ValuationResult], list[ValuationResult]]:
    """All seeds in lockstep, and each seed alone, on one market."""
    consumer, providers = torch_market(flips=(0.0, 0.2, 0.6, 0.4), budget=24, per_round=3)
    engine, evaluator = VectorizedEngine(consumer.task, providers, CPU), consumer.evaluator(CPU)

    def value(seed: int, engine: Engine, evaluator: Evaluator) -> ValuationResult:
        context = Context(consumer, tuple(providers), engine, Tally(), evaluator)
        return replace(make(seed), progress=shares.append).value(context)

    found = run_in_lockstep([partial(value, seed) for seed in SEEDS], engine, evaluator)
    return found, [value(seed, engine, evaluator) for seed in SEEDS]


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: FedShapley(stop=BackCheck(3, 0.2) | MaxPermutations(30), seed=seed, batch=2),
        lambda seed: GShapley(stop=BackCheck(2, 0.1) | MaxPermutations(40), seed=seed, batch=3),
    ],
    ids=["fedsv", "g-shapley"],
)
def test_valuations_side_by_side_equal_each_alone(make: Callable[[int], FedShapley | GShapley]) -> None:
    """They stop after different numbers of permutations: who has stopped leaves the others alone."""
    shares: list[float] = []
    found, alone = valued(make, shares)
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)
        assert one.cost.permutations == other.cost.permutations > 0
        assert one.cost.oracle_calls == other.cost.oracle_calls
        assert one.cost.utility_evaluations == other.cost.utility_evaluations
    assert len({one.cost.permutations for one in found}) > 1
    assert max(shares) == 1.0 and min(shares) > 0


def test_a_run_that_fails_is_told_of_and_the_others_end() -> None:
    consumer, providers = torch_market()
    engine, ended = VectorizedEngine(consumer.task, providers, CPU), list[int]()

    def job(seed: int, engine: Engine, evaluator: Evaluator) -> None:
        for _ in range(3):
            evaluator.score(consumer.initial_parameters()[None])
            if seed == 1:
                raise ValueError("no")
        ended.append(seed)

    with pytest.raises(ValueError, match="no"):
        run_in_lockstep([partial(job, seed) for seed in SEEDS], engine, consumer.evaluator(CPU))
    assert sorted(ended) == [0, 2]


def test_what_fails_for_all_is_told_to_all() -> None:
    consumer, providers = torch_market()

    class Broken(Engine):
        name, device = "broken", CPU

        def query(self, ask: Ask) -> Replies:
            raise RuntimeError("the device is gone")

    def job(engine: Engine, evaluator: Evaluator) -> Replies:
        return engine.query(Ask(consumer.initial_parameters(), [0], 0, 0))

    assert isinstance(providers[0], Provider)
    with pytest.raises(RuntimeError, match="the device is gone"):
        run_in_lockstep([job, job], Broken(), consumer.evaluator(CPU))
