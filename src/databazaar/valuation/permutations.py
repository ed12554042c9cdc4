"""Averaging marginal contributions over permutations: the part that all sampling methods share."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from databazaar.randomness import stream
from databazaar.valuation.stopping import History, Rule, capped
from databazaar.valuation.tally import Tally

Vector = NDArray[np.float64]
Orders = NDArray[np.int64]
"""One permutation per row: the players in the order in which they join."""


class RunningMean:
    """Welford's algorithm, per player, with the latest `memory` means kept for the stopping rules.

    >>> mean = RunningMean(1)
    >>> for x in (1.0, 2.0, 6.0):
    ...     mean.add(np.array([x]))
    >>> mean.mean, mean.standard_errors.round(3)
    (array([3.]), array([1.528]))
    """

    def __init__(self, players: int, memory: int = 1) -> None:
        self.count = 0
        self.mean: Vector = np.zeros(players)
        self.latest: deque[Vector] = deque(maxlen=memory)
        self._squares: Vector = np.zeros(players)

    def add(self, marginals: Vector) -> None:
        self.count += 1
        away = marginals - self.mean
        self.mean = self.mean + away / self.count
        self._squares += away * (marginals - self.mean)
        self.latest.append(self.mean)

    @property
    def standard_errors(self) -> Vector:
        """√(s²/T) with s² the sample variance; infinite before the second permutation."""
        if self.count < 2:
            return np.full(len(self.mean), np.inf)
        return np.asarray(np.sqrt(self._squares / (self.count - 1) / self.count))


@dataclass(frozen=True)
class Shuffle:
    """Permutation number t of `players`, from (seed, t) alone."""

    players: int
    seed: int
    purpose: str = "permutation"

    def __call__(self, number: int) -> NDArray[np.int64]:
        order: NDArray[np.int64] = _shuffled(self.players, self.seed, self.purpose, number // _BLOCK)[number % _BLOCK]
        return order


_BLOCK = 32
"""Permutations are drawn by the block: setting up a generator costs more than a shuffle."""


@lru_cache(maxsize=4)
def _shuffled(players: int, seed: int, purpose: str, block: int) -> Orders:
    ordered = np.broadcast_to(np.arange(players), (_BLOCK, players))
    return stream(seed, block, purpose).permuted(ordered, axis=1)


def average_permutations(
    marginals: Callable[[Orders, int], Vector],
    shuffle: Callable[[int], NDArray[np.int64]],
    players: int,
    stop: Rule,
    tally: Tally,
    *,
    batch: int,
    check_every: int = 1,
) -> tuple[RunningMean, str]:
    """Mean marginal contributions, and why it stopped.

    `marginals(orders, first)` gives those of a block of permutations, numbers `first` and on, as [block, players] by
    player. Blocks are worked out ahead and then cut: the rule is asked after every permutation (or every
    `check_every` of them), as if they came one by one, and what lies beyond the cut is dropped. The cost of a block is
    spread evenly over its permutations.
    """
    rule = capped(stop)
    running = RunningMean(players, rule.memory)
    history = History((), running.standard_errors, 0)
    start = tally.now()
    while True:
        left = math.ceil(min(batch, rule.permutations_left(history)))
        block = max(check_every, left)
        first, before = running.count, tally.now()
        worth = marginals(np.stack([shuffle(t) for t in range(first, first + block)]), first)
        for row, after in zip(worth, before.spread(tally.now(), block), strict=True):
            running.add(row)
            if running.count % check_every or running.count < rule.earliest:
                continue
            spent = after - start
            history = History(
                tuple(running.latest),
                running.standard_errors,
                running.count,
                spent.seconds,
                spent.oracle_calls,
                spent.evaluations,
            )
            reason = rule.reason(history)
            if reason is not None:
                return running, reason


def credit_in_order(orders: Orders, worths: Vector) -> Vector:
    """Each player's rise in worth where it joins: [P, n + 1] worths along the orders → [P, n] by player.

    >>> credit_in_order(np.array([[2, 0, 1]]), np.array([[0.0, 5.0, 5.0, 9.0]]))
    array([[0., 4., 5.]])
    """
    marginals = np.empty(orders.shape)
    np.put_along_axis(marginals, orders, np.diff(worths, axis=1), axis=1)
    return marginals
