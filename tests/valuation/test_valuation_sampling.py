"""Permutation sampling: convergence at 1/√T, honest standard errors, blocks that do not show, truncation."""

from __future__ import annotations

import numpy as np
import pytest

from databazaar import BazaarError
from databazaar.valuation import (
    BackCheck,
    Game,
    MaxPermutations,
    StandardErrorBelow,
    shapley_monte_carlo,
)
from valuation_games import Known, airport, glove, known_games, names


@pytest.mark.parametrize("known", known_games(), ids=lambda known: known.name)
def test_sampling_converges_to_the_known_answer(known: Known) -> None:
    result = shapley_monte_carlo(known.game, MaxPermutations(4_000), seed=1)
    gaps = np.abs(result.values - known.values)
    assert (gaps <= 4.5 * result.standard_errors + 1e-12).all()
    assert (gaps < 0.1 * np.ptp(known.values)).all()
    assert result.cost.permutations == 4_000 and result.stopped == "the cap of 4,000 permutations"


def test_error_shrinks_as_one_over_the_root_of_permutations() -> None:
    known = airport()

    def error(permutations: int) -> float:
        runs = [shapley_monte_carlo(known.game, MaxPermutations(permutations), seed=s).values for s in range(60)]
        return float(np.sqrt(np.mean((np.array(runs) - known.values) ** 2)))

    errors = [error(t) for t in (8, 32, 128)]
    slope = np.polyfit(np.log([8, 32, 128]), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35


def test_standard_errors_say_how_far_off_the_values_are() -> None:
    known = glove()
    results = [shapley_monte_carlo(known.game, MaxPermutations(60), seed=s) for s in range(150)]
    scores = np.array([(r.values - known.values) / r.standard_errors for r in results])
    assert 0.75 < scores.std() < 1.3
    within = np.mean(np.abs(scores) < 1.96)
    assert 0.88 < within < 0.99


def test_efficiency_holds_in_every_permutation() -> None:
    known = glove()
    result = shapley_monte_carlo(known.game, MaxPermutations(7))
    assert result.values.sum() == pytest.approx(2.0)


@pytest.mark.parametrize("batch", [1, 3, 10, 64])
def test_blocks_of_permutations_do_not_show(batch: int) -> None:
    """The rule is applied after each permutation, as if they came one by one."""
    rules = [BackCheck(5, 0.05), StandardErrorBelow(0.3), MaxPermutations(17)]
    for rule in rules:
        one = shapley_monte_carlo(airport().game, rule, seed=4, batch=1)
        many = shapley_monte_carlo(airport().game, rule, seed=4, batch=batch)
        np.testing.assert_array_equal(one.values, many.values)
        assert (one.stopped, one.cost.permutations) == (many.stopped, many.cost.permutations)


def test_a_rule_without_an_end_is_capped() -> None:
    coin = np.random.default_rng(0)
    restless = Game(names(2), lambda s: coin.normal(size=len(s)) * 1e6)
    result = shapley_monte_carlo(restless, StandardErrorBelow(1e-12), batch=500)
    assert result.cost.permutations == 10_000


def test_truncation_saves_evaluations_and_costs_little() -> None:
    def worth(s: np.ndarray) -> np.ndarray:
        return np.asarray(1 - 0.3 ** (s @ np.arange(1.0, 9.0)))

    whole = shapley_monte_carlo(Game(names(8), worth), MaxPermutations(20), seed=2)
    cut = shapley_monte_carlo(Game(names(8), worth), MaxPermutations(20), seed=2, truncation=0.01)
    assert cut.cost.utility_evaluations < 0.7 * whole.cost.utility_evaluations
    np.testing.assert_allclose(cut.values, whole.values, atol=0.01)
    none = shapley_monte_carlo(Game(names(8), worth), MaxPermutations(20), seed=2, truncation=0.0)
    np.testing.assert_array_equal(none.values, whole.values)
    with pytest.raises(BazaarError, match="truncation"):
        shapley_monte_carlo(Game(names(2), worth), truncation=-1.0)
