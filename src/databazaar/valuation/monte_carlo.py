"""Shapley values by sampling permutations, with truncation: TMC-Shapley on the retraining game.

Players join in random order; each is credited with the rise in worth where it joins. The mean over permutations is an
unbiased estimate of the Shapley value. Truncation gives a player nothing where the worth of those before it is already
within a tolerance of the worth of everybody, and saves the training (Ghorbani & Zou 2019, Algorithm 1).

Departures from the paper: the tolerance is a share of |v(N) − v(∅)|, so that it means the same for every utility.
The players are providers, not single samples. Permutations are worked out in blocks, with the same outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.randomness import stream
from databazaar.valuation.games import Game, training_game
from databazaar.valuation.method import Context, Method
from databazaar.valuation.result import Tally, ValuationResult, Vector
from databazaar.valuation.stopping import GhorbaniZou, History, MaxPermutations, Rule, capped

Orders = NDArray[np.int64]
"""One permutation per row: the players in the order in which they join."""

_BLOCK = 128
"""Permutations are drawn by the block: setting up a generator costs as much as a hundred shuffles of ten players."""

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
    count, n = orders.shape
    if truncation is None:
        joined = np.argsort(orders, axis=1)[:, None, :] < np.arange(n + 1)[:, None]
        return game.value(joined.reshape(-1, n)).reshape(count, n + 1)
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


@dataclass(frozen=True)
class Shuffle:
    """Permutation number t of `players`, from (seed, t) alone."""

    players: int
    seed: int
    purpose: str = "permutation"

    def __call__(self, number: int) -> NDArray[np.int64]:
        order: NDArray[np.int64] = _shuffled(self.players, self.seed, self.purpose, number // _BLOCK)[number % _BLOCK]
        return order


@lru_cache(maxsize=64)
def _shuffled(players: int, seed: int, purpose: str, block: int) -> Orders:
    ordered = np.broadcast_to(np.arange(players), (_BLOCK, players))
    return stream(seed, block, purpose).permuted(ordered, axis=1)


class Averaging:
    """Mean marginal contributions over permutations, until a rule says stop.

    Up to `batch` permutations are worked out at a time. The rule is asked after every one, as if they came one by one,
    and those beyond the stop are dropped.
    """

    def __init__(
        self, shuffle: Callable[[int], NDArray[np.int64]], players: int, stop: Rule, tally: Tally, *, batch: int
    ) -> None:
        self.count = 0
        self.mean: Vector = np.zeros(players)
        self.stopped: str | None = None
        self._squares: Vector = np.zeros(players)
        self._estimates: list[Vector] = []
        self.rule, self._shuffle, self._tally, self._batch = capped(stop), shuffle, tally, batch
        self._start = tally.now()
        self.history = History((), self.standard_errors, tally.now() - self._start)

    @property
    def standard_errors(self) -> Vector:
        """√(s²/T) with s² the sample variance; infinite before the second permutation."""
        if self.count < 2:
            return np.full(len(self.mean), np.inf)
        return np.asarray(np.sqrt(self._squares / (self.count - 1) / self.count))

    def orders(self) -> Orders:
        """The next permutations, numbers `count` and on."""
        size = max(1, math.ceil(min(self._batch, self.rule.permutations_left(self.history))))
        return np.stack([self._shuffle(t) for t in range(self.count, self.count + size)])

    def add(self, marginals: Vector) -> None:
        """Takes the marginal contributions in the permutations of `orders`, [batch, players] by player."""
        for marginal in marginals:
            self.count += 1
            away = marginal - self.mean
            self.mean = self.mean + away / self.count
            self._squares = self._squares + away * (marginal - self.mean)
            self._estimates = [*self._estimates, self.mean][-self.rule.memory :]
            cost = self._tally.now(self.count) - self._start
            self.history = History(self._estimates, self.standard_errors, cost)
            self.stopped = self.rule.reason(self.history)
            if self.stopped is not None:
                return


def credit_in_order(orders: Orders, worths: Vector) -> Vector:
    """Each player's rise in worth where it joins: [P, n + 1] worths along the orders → [P, n] by player.

    >>> credit_in_order(np.array([[2, 0, 1]]), np.array([[0.0, 5.0, 5.0, 9.0]]))
    array([[0., 4., 5.]])
    """
    marginals = np.empty(orders.shape)
    marginals[np.arange(len(orders))[:, None], orders] = worths[:, 1:] - worths[:, :-1]
    return marginals
