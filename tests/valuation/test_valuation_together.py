"""Several valuations side by side: each gets what it would get alone, from far fewer and larger computations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from valuation_games import additive_market, classification_market, regression_market

from databazaar import Consumer, FullGradient, Provider
from databazaar.engines import VectorizedEngine
from databazaar.valuation import BackCheck, MaxPermutations, ValuationResult, fed_shapley, g_shapley, gtg_shapley
from databazaar.valuation.combinations import Combinations
from databazaar.valuation.context import Context
from databazaar.valuation.federated import FedShapley
from databazaar.valuation.gradient import GShapley, Walks
from databazaar.valuation.lockstep import run_in_lockstep
from databazaar.valuation.method import SteppedMethod
from databazaar.valuation.result import Tally
from databazaar.valuation.scoring import FirstLayer, PlainScorer, PrefixScorer, Scorer

CPU = torch.device("cpu")
SEEDS = (0, 1, 2)


def together(
    make: Callable[[int], SteppedMethod], shares: list[float] | None = None
) -> tuple[list[ValuationResult], list[ValuationResult]]:
    """All seeds in lockstep, and each seed alone, on one market."""
    consumer, providers = classification_market()
    engine = VectorizedEngine(consumer.task, providers, CPU)
    evaluator = consumer.evaluator(CPU)

    def context() -> Context:
        progress = shares.append if shares is not None else lambda share: None
        return Context(consumer, tuple(providers), engine, evaluator, Tally(), progress)

    in_lockstep = run_in_lockstep([make(seed).steps(context()) for seed in SEEDS], engine, evaluator)
    return in_lockstep, [make(seed).value(context()) for seed in SEEDS]


@pytest.mark.parametrize("table", [True, False])
def test_federated_valuations_side_by_side_equal_each_alone(table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not table:
        monkeypatch.setattr("databazaar.valuation.round_game.TABLE_FLOATS", 0)
    stop = BackCheck(3, 0.2) | MaxPermutations(30)
    found, alone = together(lambda seed: FedShapley(stop=stop, seed=seed, batch=2))
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)
        assert one.cost.permutations == other.cost.permutations > 0
        assert one.cost.utility_evaluations == other.cost.utility_evaluations
    assert len({one.cost.permutations for one in found}) > 1


def test_gradient_valuations_side_by_side_equal_each_alone() -> None:
    """They stop after different numbers of permutations: who has stopped leaves the others alone."""
    stop = BackCheck(2, 0.1) | MaxPermutations(40)
    shares: list[float] = []
    found, alone = together(lambda seed: GShapley(stop=stop, seed=seed, batch=3), shares)
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)
        assert one.cost.permutations == other.cost.permutations
        assert one.cost.oracle_calls == other.cost.oracle_calls
    assert len({one.cost.permutations for one in found}) > 1
    assert shares[-1] == 1.0 and min(shares) > 0 and len(shares) >= 2 * len(SEEDS)


def test_all_coalitions_at_once_or_only_those_needed_give_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, providers = classification_market(n=8, per_round=5, budget=20)
    stop = BackCheck(2, 0.3) | MaxPermutations(9)
    every = fed_shapley(consumer, providers, stop=stop, seed=4)
    assert every.cost.utility_evaluations == 4 * 2**5 + 1, "what was scored is counted, needed or not"
    monkeypatch.setattr("databazaar.valuation.round_game.TABLE_FLOATS", 0)
    few = fed_shapley(consumer, providers, stop=stop, seed=4, batch=1)
    np.testing.assert_allclose(few.values, every.values, atol=1e-5)
    np.testing.assert_allclose(few.standard_errors, every.standard_errors, atol=1e-5)
    assert few.cost.permutations == every.cost.permutations
    assert 4 * 6 < few.cost.utility_evaluations < every.cost.utility_evaluations


def test_a_users_own_utility_is_asked_for_needed_coalitions_only() -> None:
    consumer, providers = additive_market([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    result = fed_shapley(consumer, providers, engine="loop", stop=MaxPermutations(2))
    np.testing.assert_allclose(result.values, np.arange(1.0, 7.0))
    assert result.cost.utility_evaluations <= 1 + 6 + 2 * 5 + 1


def test_many_players_in_a_round_are_valued_too() -> None:
    for players in (17, 70):
        gifts = [float(i) for i in range(players)]
        result = fed_shapley(*additive_market(gifts), engine="loop", stop=MaxPermutations(2))
        np.testing.assert_allclose(result.values, gifts)


def scorers(seed: int, updates: int) -> tuple[Scorer, Scorer]:
    """The same round twice, plain and by the first layer, in a market that all seeds share."""
    rng = torch.Generator().manual_seed(seed)
    w = 0.5 * torch.randn(len(SHARED.initial_parameters()), generator=rng)
    moves = 0.3 * torch.randn(updates, len(w), generator=rng)
    assert LAYER is not None
    return PlainScorer(EVALUATOR, w, moves), PrefixScorer(LAYER, w, moves)


SHARED = Consumer(
    nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    10,
    holdout=(
        torch.randn(30, 6, generator=torch.Generator().manual_seed(1)),
        torch.randint(0, 3, (30,), generator=torch.Generator().manual_seed(2)),
    ),
    utility="negative-loss",
)
EVALUATOR = SHARED.evaluator(CPU)
LAYER = FirstLayer.of(EVALUATOR)


@pytest.mark.parametrize("floats", [2**21, 30 * 5 * 9, 1])
@pytest.mark.parametrize("kind", [0, 1])
def test_rounds_of_different_sizes_are_scored_together(kind: int, floats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sizes = [(4, 7), (4, 12), (3, 5), (4, 1), (1, 2)]
    monkeypatch.setattr("databazaar.valuation.scoring.CHUNK_FLOATS", floats)
    monkeypatch.setattr("databazaar.valuation.scoring.PLAIN_FLOATS", floats)
    requests = [Combinations(scorers(seed, k)[kind], rng.random((rows, k))) for seed, (k, rows) in enumerate(sizes)]
    answers = Combinations.answer(requests, small_engine(), EVALUATOR)
    for seed, ((k, rows), request, answer) in enumerate(zip(sizes, requests, answers, strict=True)):
        assert answer.shape == (rows,)
        np.testing.assert_allclose(answer, scorers(seed, k)[0](request.coefficients), atol=1e-5)
    assert len({round(float(answer[0]), 4) for answer in answers}) == len(sizes)


def small_engine() -> VectorizedEngine:
    consumer, providers = regression_market()
    return VectorizedEngine(consumer.task, providers, CPU)


def test_walks_leave_out_updates_that_fail() -> None:
    """One provider's data blow its update up: it earns nothing, by the stacked engine and by the plain one."""
    consumer, providers = regression_market()
    x, _ = providers[1].dataset
    providers[1] = Provider("p1", data=(x, np.full(len(x), 1e30, dtype=np.float32)), oracle=FullGradient())
    stop = MaxPermutations(5)
    fast, slow = (g_shapley(consumer, providers, stop=stop, engine=engine) for engine in ("vectorized", "loop"))
    np.testing.assert_allclose(fast.values, slow.values, atol=1e-4)
    assert fast.values[1] == 0.0 and (np.abs(fast.values[[0, 2, 3]]) > 1e-3).all()


def test_each_walk_takes_its_own_step() -> None:
    consumer, providers = regression_market()
    engine, evaluator = VectorizedEngine(consumer.task, providers, CPU), consumer.evaluator(CPU)
    start, orders = consumer.initial_parameters(), np.array([[0, 1, 2, 3], [3, 1, 0, 2]])
    nothing = float(evaluator.score(start[None]).utility[0])
    walks = [Walks(start, orders, [1, 2], 0.1, nothing), Walks(start, orders[:1], [1], 0.0, nothing)]
    moving, still = Walks.answer(walks, engine, evaluator)
    assert moving.shape == (2, 4) and still.shape == (1, 4)
    np.testing.assert_allclose(still, nothing, rtol=1e-6)
    assert (moving != nothing).all() and moving[0, 0] != moving[1, 0]


def test_gtg_scores_only_what_it_needs_in_lockstep() -> None:
    market = classification_market()
    cut = gtg_shapley(*market, within_round=0.9, stop=MaxPermutations(6), rounds=8)
    whole = gtg_shapley(*market, within_round=0.0, stop=MaxPermutations(6), rounds=8)
    assert cut.cost.utility_evaluations < whole.cost.utility_evaluations <= 8 * 2**3 + 1
