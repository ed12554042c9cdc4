"""Side by side with pyDVL, on the same utility: a real training game between providers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from databazaar.valuation import Game, MaxPermutations, shapley_exact, shapley_monte_carlo
from databazaar.valuation.games import training_game
from databazaar.valuation.method import Context
from pydvl_here import InProcess
from valuation_games import airport, classification_market


@pytest.fixture(scope="module")
def pydvl() -> Any:
    """pyDVL 0.9 is the last that may be installed beside NumPy 2, and still says np.float_ for np.float64."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(np, "float_", np.float64, raising=False)
        import pydvl.parallel
        import pydvl.utils
        import pydvl.value

        yield pydvl


def as_utility(pydvl: Any, game: Game) -> Any:
    """The game as pyDVL sees it: one data point per player, and the worth of a set of indices.

    Its sampling takes nobody to be worth zero, so that is subtracted; Shapley values do not change by it.
    """
    n = len(game.players)
    nothing = float(game.value(game.nobody)[0])

    class CoalitionWorth(pydvl.utils.Utility):  # type: ignore[misc]
        def __init__(self) -> None:
            one = np.zeros((n, 1))
            self.data = pydvl.utils.Dataset(one, one[:, 0], one, one[:, 0])

        def __call__(self, indices: Any) -> float:
            row = np.zeros((1, n), dtype=bool)
            row[0, [int(i) for i in indices]] = True
            return float(game.value(row)[0]) - nothing

    return CoalitionWorth()


@pytest.fixture(scope="module", params=["training", "airport"])
def game(request: pytest.FixtureRequest) -> Any:
    if request.param == "airport":
        yield airport().game
        return
    with Context.open(*classification_market(4), "vectorized", "cpu") as market:
        yield training_game(market, rounds=2)


def test_exact_values_agree(pydvl: Any, game: Game) -> None:
    theirs = pydvl.value.compute_shapley_values(
        as_utility(pydvl, game), mode=pydvl.value.ShapleyMode.CombinatorialExact, progress=False
    )
    np.testing.assert_allclose(shapley_exact(game).values, theirs.values, atol=1e-10)


def test_monte_carlo_values_agree(pydvl: Any, game: Game) -> None:
    theirs = pydvl.value.compute_shapley_values(
        as_utility(pydvl, game),
        mode=pydvl.value.ShapleyMode.PermutationMontecarlo,
        done=pydvl.value.MaxUpdates(300),
        truncation=pydvl.value.NoTruncation(),
        parallel_backend=InProcess(),
        seed=1,
        progress=False,
    )
    ours = shapley_monte_carlo(game, MaxPermutations(300), seed=1)
    spread = np.sqrt(ours.standard_errors**2 + theirs.stderr**2)
    assert (np.abs(ours.values - theirs.values) <= 4.5 * spread + 1e-12).all()
    np.testing.assert_allclose(ours.standard_errors, theirs.stderr, rtol=0.3)
