"""What the models of rounds and walks are scored by, and how many are scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import Consumer, Provider
from databazaar.learning.oracles import FullGradient
from databazaar.valuation import BackCheck, MaxPermutations
from databazaar_experiments.fed_shapley import FedShapley, Scorer
from databazaar_experiments.first_layer import FirstLayer, PrefixScorer
from databazaar_experiments.g_shapley import GShapley
from databazaar_experiments.gtg import GTGShapley
from valuation_games import additive_market, classification_market, regression_market

CPU = torch.device("cpu")


def test_any_number_of_permutations_at_a_time_gives_the_same_values() -> None:
    consumer, providers = classification_market(n=8, per_round=5, budget=20)
    stop = BackCheck(2, 0.3) | MaxPermutations(9)
    many = FedShapley(stop=stop, seed=4, batch=9).run(consumer, providers)
    few = FedShapley(stop=stop, seed=4, batch=1).run(consumer, providers)
    np.testing.assert_allclose(few.values, many.values, atol=1e-5)
    np.testing.assert_allclose(few.standard_errors, many.standard_errors, atol=1e-5)
    assert few.cost.permutations == many.cost.permutations
    assert 4 * 6 < few.cost.utility_evaluations <= many.cost.utility_evaluations <= 4 * 2**5 + 1


def test_a_users_own_utility_is_asked_for_needed_coalitions_only() -> None:
    consumer, providers = additive_market([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    result = FedShapley(engine="loop", stop=MaxPermutations(2)).run(consumer, providers)
    np.testing.assert_allclose(result.values, np.arange(1.0, 7.0))
    assert result.cost.utility_evaluations <= 1 + 6 + 2 * 5 + 1


def test_many_players_in_a_round_are_valued_too() -> None:
    for players in (17, 70):
        gifts = [float(i) for i in range(players)]
        result = FedShapley(engine="loop", stop=MaxPermutations(2)).run(*additive_market(gifts))
        np.testing.assert_allclose(result.values, gifts)


def scorers(seed: int, updates: int) -> tuple[Scorer, Scorer]:
    """The same round twice, plain and by the first layer, in a market that all seeds share."""
    rng = torch.Generator().manual_seed(seed)
    w = 0.5 * torch.randn(len(SHARED.initial_parameters()), generator=rng)
    moves = 0.3 * torch.randn(updates, len(w), generator=rng)
    assert LAYER is not None
    return Scorer(EVALUATOR, w, moves), PrefixScorer(LAYER, w, moves)


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
@pytest.mark.parametrize(("updates", "rows"), [(4, 7), (4, 12), (3, 5), (4, 1), (1, 2)])
def test_both_scorers_agree_in_any_parts(updates: int, rows: int, floats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    coefficients = np.random.default_rng(0).random((rows, updates))
    plain, _ = scorers(updates, updates)
    right = plain(coefficients)
    monkeypatch.setattr("databazaar_experiments.first_layer.CHUNK_FLOATS", floats)
    monkeypatch.setattr("databazaar_experiments.fed_shapley.PLAIN_FLOATS", floats)
    for scorer in scorers(updates, updates):
        found = scorer(coefficients)
        assert found.shape == (rows,)
        np.testing.assert_allclose(found, right, atol=1e-5)


def test_walks_leave_out_updates_that_fail() -> None:
    """One provider's data blow its update up: it earns nothing, by the stacked engine and by the plain one."""
    consumer, providers = regression_market()
    x, _ = providers[1].dataset
    providers[1] = Provider("p1", data=(x, np.full(len(x), 1e30, dtype=np.float32)), oracle=FullGradient())
    stop = MaxPermutations(5)
    fast, slow = (GShapley(stop=stop, engine=engine).run(consumer, providers) for engine in ("vectorized", "loop"))
    np.testing.assert_allclose(fast.values, slow.values, atol=1e-4)
    assert fast.values[1] == 0.0 and (np.abs(fast.values[[0, 2, 3]]) > 1e-3).all()


def test_gtg_scores_only_what_it_needs() -> None:
    market = classification_market()
    cut = GTGShapley(within_round=0.9, stop=MaxPermutations(6), rounds=8).run(*market)
    whole = GTGShapley(within_round=0.0, stop=MaxPermutations(6), rounds=8).run(*market)
    assert cut.cost.utility_evaluations < whole.cost.utility_evaluations <= 8 * 2**3 + 1
