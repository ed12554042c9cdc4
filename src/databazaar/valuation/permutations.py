"""Averaging marginal contributions over permutations: the part that all sampling methods share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from databazaar.randomness import stream
from databazaar.valuation.result import Tally, Vector
from databazaar.valuation.stopping import History, Rule, capped

Orders = NDArray[np.int64]
"""One permutation per row: the players in the order in which they join."""

_BLOCK = 128
"""Permutations are drawn by the block: setting up a generator costs as much as a hundred shuffles of ten players."""


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
    and those beyond the stop are dropped. The cost of a batch is spread evenly over its permutations.
    """

    def __init__(
        self, shuffle: Callable[[int], NDArray[np.int64]], players: int, stop: Rule, tally: Tally, *, batch: int
    ) -> None:
        self.count = 0
        self.mean: Vector = np.zeros(players)
        self.stopped: str | None = None
        self._squares: Vector = np.zeros(players)
        self._estimates: list[Vector] = []
        self._rule, self._shuffle, self._tally, self._batch = capped(stop), shuffle, tally, batch
        self._start = self._before = tally.now()
        self._history = History((), self.standard_errors, tally.now() - self._start)

    @property
    def standard_errors(self) -> Vector:
        """√(s²/T) with s² the sample variance; infinite before the second permutation."""
        if self.count < 2:
            return np.full(len(self.mean), np.inf)
        return np.asarray(np.sqrt(self._squares / (self.count - 1) / self.count))

    def orders(self) -> Orders:
        """The next permutations, numbers `count` and on."""
        size = max(1, math.ceil(min(self._batch, self._rule.permutations_left(self._history))))
        self._before = self._tally.now()
        return np.stack([self._shuffle(t) for t in range(self.count, self.count + size)])

    def add(self, marginals: Vector) -> None:
        """Takes the marginal contributions in the permutations of `orders`, [batch, players] by player."""
        before, during = self._before - self._start, self._tally.now() - self._before
        for row, marginal in enumerate(marginals, 1):
            self.count += 1
            away = marginal - self.mean
            self.mean = self.mean + away / self.count
            self._squares = self._squares + away * (marginal - self.mean)
            self._estimates = [*self._estimates, self.mean][-self._rule.memory :]
            cost = before.plus(during, row / len(marginals), self.count)
            self._history = History(self._estimates, self.standard_errors, cost)
            self.stopped = self._rule.reason(self._history)
            if self.stopped is not None:
                return

    @property
    def share(self) -> float:
        """Which share of the permutations is done at least, by the rule's caps; 1 at the end."""
        left = 0.0 if self.stopped is not None else self._rule.permutations_left(self._history)
        return self.count / (self.count + left)


def credit_in_order(orders: Orders, worths: Vector) -> Vector:
    """Each player's rise in worth where it joins: [P, n + 1] worths along the orders → [P, n] by player.

    >>> credit_in_order(np.array([[2, 0, 1]]), np.array([[0.0, 5.0, 5.0, 9.0]]))
    array([[0., 4., 5.]])
    """
    marginals = np.empty(orders.shape)
    marginals[np.arange(len(orders))[:, None], orders] = worths[:, 1:] - worths[:, :-1]
    return marginals
