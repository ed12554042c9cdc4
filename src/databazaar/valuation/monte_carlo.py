"""Shapley values by sampling permutations, with truncation: TMC-Shapley on the retraining game.

Players join in random order; each is credited with the rise in worth where it joins. The mean over permutations is an
unbiased estimate of the Shapley value. Truncation gives a player nothing where the worth of those before it is already
within a tolerance of the worth of everybody, and saves the training (Ghorbani & Zou 2019, Algorithm 1).

Departures from the paper: the tolerance is a share of |v(N) − v(∅)|, so that it means the same for every utility.
The players are providers, not single samples. Permutations are worked out in blocks, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.valuation.context import Context
from databazaar.valuation.games import Game
from databazaar.valuation.method import Method, as_function
from databazaar.valuation.permutations import Averaging, Orders, Shuffle, credit_in_order
from databazaar.valuation.result import ValuationResult, Vector
from databazaar.valuation.stopping import GhorbaniZou, MaxPermutations, Rule
from databazaar.valuation.training_game import training_game

STOP = GhorbaniZou(0.05) | MaxPermutations(1_000)


@dataclass(frozen=True, kw_only=True)
class TMCShapley(Method):
    """Truncated Monte Carlo Shapley: trains a model for every prefix of every permutation that is not truncated."""

    stop: Rule = STOP
    truncation: float = 0.01
    rounds: int = 5
    batch: int = 10
    kind: ClassVar[str] = "tmc"
    limit_argument: ClassVar[str | None] = "stop"

    def value(self, context: Context) -> ValuationResult:
        game = training_game(context, self.rounds, self.seed)
        result = shapley_monte_carlo(game, self.stop, self.seed, truncation=self.truncation, batch=self.batch)
        return context.finished(result, self.kind)


tmc_shapley = as_function(TMCShapley, "tmc_shapley")
"""`TMCShapley` as one call."""


def shapley_monte_carlo(
    game: Game,
    stop: Rule = STOP,
    seed: int = 0,
    *,
    truncation: float | None = None,
    shuffle: Callable[[int], NDArray[np.int64]] | None = None,
    batch: int = 10,
) -> ValuationResult:
    """Permutation sampling on any game; `batch` permutations are worked out at a time. No truncation by default.

    >>> game = Game(["a", "b"], lambda s: s @ np.array([2.0, 3.0]))
    >>> shapley_monte_carlo(game, MaxPermutations(3)).values
    array([2., 3.])
    """
    shuffle = shuffle or Shuffle(len(game.players), seed)
    if truncation is not None and not truncation >= 0:
        raise BazaarError(f"truncation = {truncation} must be zero or more: it is a share of the whole's worth")
    start = game.tally.now()
    averaging = Averaging(shuffle, len(game.players), stop, game.tally, batch=batch)
    while averaging.stopped is None:
        orders = averaging.orders()
        averaging.add(credit_in_order(orders, worths_along(game, orders, truncation)))
    cost = game.tally.now(averaging.count) - start
    errors, stopped = averaging.standard_errors, averaging.stopped
    return ValuationResult("monte-carlo", game.players, averaging.mean, errors, stopped, cost)


def worths_along(game: Game, orders: Orders, truncation: float | None = None) -> Vector:
    """The worth of nobody, of the first player, of the first two, …: [P, n + 1] for orders [P, n]."""
    if truncation is None:
        return game.value_along(orders)
    count, n = orders.shape
    worths = np.empty((count, n + 1))
    worths[:, 0] = nothing = game.value(game.nobody)[0]
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
