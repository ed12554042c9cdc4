"""Four defects that public implementations are known for: a test for each, on every sampling method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from databazaar import Consumer, Provider
from databazaar.valuation import Game, MaxPermutations, shapley_monte_carlo
from databazaar_experiments.fed_shapley import FedShapley, FedShapleyExact
from databazaar_experiments.g_shapley import GShapley
from databazaar_experiments.gtg import GTGShapley
from valuation_games import Vector, additive_market, names

Method = Callable[[list[float]], Vector]
FEW = MaxPermutations(4)


def by_sampling(gifts: list[float]) -> Vector:
    game = Game(names(len(gifts)), lambda s: s @ np.array(gifts))
    return shapley_monte_carlo(game, FEW).values


def by_truncation(gifts: list[float]) -> Vector:
    game = Game(names(len(gifts)), lambda s: s @ np.array(gifts))
    return shapley_monte_carlo(game, FEW, truncation=0.0).values


def by_g_shapley(gifts: list[float]) -> Vector:
    return GShapley(stop=FEW, engine="loop").run(*additive_market(gifts)).values


def by_fed_shapley(gifts: list[float]) -> Vector:
    return FedShapley(stop=FEW, engine="loop").run(*additive_market(gifts)).values


def by_fed_shapley_exact(gifts: list[float]) -> Vector:
    return FedShapleyExact(engine="loop").run(*additive_market(gifts)).values


def by_gtg(gifts: list[float]) -> Vector:
    return GTGShapley(stop=FEW, within_round=0.0, aggregate="sum", engine="loop").run(*additive_market(gifts)).values


METHODS = [by_sampling, by_truncation, by_g_shapley, by_fed_shapley, by_fed_shapley_exact, by_gtg]


@pytest.mark.parametrize("method", METHODS)
def test_the_participant_is_credited_and_not_its_position(method: Method) -> None:
    """In an additive game each provider's share is its own in any order: crediting positions would mix them."""
    gifts = [1.0, 10.0, 100.0, 1000.0, 10000.0]
    np.testing.assert_allclose(method(gifts), gifts, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_marginals_are_not_clipped_at_zero(method: Method) -> None:
    gifts = [1.0, -2.0, 3.0, -4.0]
    np.testing.assert_allclose(method(gifts), gifts, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_first_of_a_permutation_is_not_lost(method: Method) -> None:
    """Values add up to the whole, and a lone provider, always the first, gets all of it."""
    assert method([2.0, 5.0, 7.0]).sum() == pytest.approx(14.0)
    np.testing.assert_allclose(method([3.0]), [3.0])


def test_behind_the_figures_the_first_of_a_permutation_gets_no_credit() -> None:
    values = GShapley(stop=FEW, engine="loop", credit_first=False).run(*additive_market([3.0])).values
    np.testing.assert_array_equal(values, [0.0])
    gifts = [6.0, 6.0, 6.0]
    few = GShapley(stop=MaxPermutations(9), engine="loop", credit_first=False).run(*additive_market(gifts)).values
    assert few.sum() == pytest.approx(12.0)


def saturating_market() -> tuple[Consumer, list[Provider]]:
    """The utility is the root of what all gave: the second to come brings less than the first."""
    _, providers = additive_market([4.0, 4.0, 4.0])
    return Consumer(np.zeros(3), budget=3, per_round=3, utility=lambda w: float(np.sqrt(w.sum()))), providers


@pytest.mark.parametrize("method", ["g-shapley", "fedsv", "fedsv-exact", "gtg"])
def test_the_prefix_accumulates(method: str) -> None:
    """Each marginal is on top of all before it: the sum is √12. On top of the start alone it would be 3·√4."""
    consumer, providers = saturating_market()
    result = {
        "g-shapley": lambda: GShapley(stop=MaxPermutations(6), engine="loop").run(consumer, providers),
        "fedsv": lambda: FedShapley(stop=MaxPermutations(6), engine="loop").run(consumer, providers),
        "fedsv-exact": lambda: FedShapleyExact(engine="loop").run(consumer, providers),
        "gtg": lambda: GTGShapley(within_round=0.0, aggregate="sum", engine="loop").run(consumer, providers),
    }[method]()
    assert result.values.sum() == pytest.approx(np.sqrt(12.0))
