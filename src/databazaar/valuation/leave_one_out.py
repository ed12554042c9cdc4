"""Leave-one-out: what the whole loses when one provider is missing, v(N) − v(N ∖ i).

The oldest and cheapest value: n + 1 trainings. Two providers with the same data are both worth nothing by it, which
is why Shapley values exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from databazaar.engines import Engine
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.games import Game
from databazaar.valuation.market import Market
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.training_game import training_game


def leave_one_out(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    rounds: int = 5,
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
) -> ValuationResult:
    """Trains with everybody, and once without each provider."""
    with Market.open(consumer, providers, engine, device) as market:
        return market.finished(leave_one_out_game(training_game(market, rounds, seed)))


def leave_one_out_game(game: Game) -> ValuationResult:
    """v(N) − v(N ∖ i) for every player of a game.

    >>> leave_one_out_game(Game(["a", "b"], lambda s: s @ np.array([2.0, 3.0]))).values
    array([2., 3.])
    """
    n = len(game.players)
    start = game.tally.now()
    worths = game.value(np.concatenate([game.everybody, ~np.eye(n, dtype=bool)]))
    stopped, cost = f"everybody, and each of {n:,} left out once", game.tally.cost(start)
    return ValuationResult("leave-one-out", game.players, worths[0] - worths[1:], np.zeros(n), stopped, cost)
