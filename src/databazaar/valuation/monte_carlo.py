"""Shapley values by sampling permutations, with truncation: TMC-Shapley on the retraining game.

Players join in random order; each is credited with the rise in worth where it joins. The mean over permutations is an
unbiased estimate of the Shapley value. Truncation gives a player nothing where the worth of those before it is already
within a tolerance of the worth of everybody, and saves the training (Ghorbani & Zou 2019, Algorithm 1).

Departures from the paper: the tolerance is a share of |v(N) − v(∅)|, so that it means the same for every utility.
The players are providers, not single samples. Permutations are worked out in blocks, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from databazaar.consumer import Consumer
from databazaar.engines import Engine
from databazaar.errors import BazaarError
from databazaar.provider import Provider
from databazaar.valuation.games import Game
from databazaar.valuation.market import Market
from databazaar.valuation.permutations import Orders, Shuffle, average_permutations, credit_in_order
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.stopping import GhorbaniZou, MaxPermutations, Rule
from databazaar.valuation.training_game import training_game

Vector = NDArray[np.float64]

STOP = GhorbaniZou(0.05) | MaxPermutations(1_000)


def tmc_shapley(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    stop: Rule = STOP,
    truncation: float = 0.01,
    rounds: int = 5,
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
    batch: int = 10,
) -> ValuationResult:
    """Truncated Monte Carlo Shapley: trains a model for every prefix of every permutation that is not truncated."""
    with Market.open(consumer, providers, engine, device) as market:
        game = training_game(market, rounds, seed)
        result = shapley_monte_carlo(game, stop, seed, truncation=truncation, batch=batch)
        return market.finished(result, "tmc")


def shapley_monte_carlo(
    game: Game,
    stop: Rule = STOP,
    seed: int = 0,
    *,
    truncation: float | None = None,
    shuffle: Callable[[int], NDArray[np.int64]] | None = None,
    batch: int = 10,
    check_every: int = 1,
) -> ValuationResult:
    """Permutation sampling on any game; `batch` permutations are worked out at a time. No truncation by default.

    >>> game = Game(["a", "b"], lambda s: s @ np.array([2.0, 3.0]))
    >>> shapley_monte_carlo(game, MaxPermutations(3)).values
    array([2., 3.])
    """
    if truncation is not None and not truncation >= 0:
        raise BazaarError(f"truncation = {truncation} must be zero or more: it is a share of the whole's worth")
    n = len(game.players)
    start = game.tally.now()

    def marginals(orders: Orders, _first: int) -> Vector:
        return credit_in_order(orders, worths_along(game, orders, truncation))

    running, stopped = average_permutations(
        marginals, shuffle or Shuffle(n, seed), n, stop, game.tally, batch=batch, check_every=check_every
    )
    cost = game.tally.cost(start, running.count)
    return ValuationResult("monte-carlo", game.players, running.mean, running.standard_errors, stopped, cost)


def worths_along(game: Game, orders: Orders, truncation: float | None = None) -> Vector:
    """The worth of nobody, of the first player, of the first two, …: [P, n + 1] for orders [P, n]."""
    count, n = orders.shape
    worths = np.empty((count, n + 1))
    worths[:, 0] = nothing = game.value(game.nobody)[0]
    if truncation is None:
        joined = np.argsort(orders, axis=1)[:, None, :] <= np.arange(n)[:, None]
        worths[:, 1:] = game.value(joined.reshape(-1, n)).reshape(count, n)
        return worths
    whole = game.value(game.everybody)[0]
    close = truncation * abs(whole - nothing)
    members = np.zeros((count, n), dtype=bool)
    for j in range(n):
        members[np.arange(count), orders[:, j]] = True
        going = np.abs(whole - worths[:, j]) >= close
        worths[:, j + 1] = worths[:, j]
        if going.any():
            worths[going, j + 1] = game.value(members[going])
    return worths
