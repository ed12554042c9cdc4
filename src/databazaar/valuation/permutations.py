"""Averaging marginal contributions over permutations: the part that all sampling methods share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from databazaar.randomness import stream
from databazaar.valuation.history import Histories, History
from databazaar.valuation.result import Tally
from databazaar.valuation.stopping import Rule, capped

Vector = NDArray[np.float64]
Orders = NDArray[np.int64]
"""One permutation per row: the players in the order in which they join."""


class RunningMean:
    """Means and their standard errors after every permutation, a block at a time.

    With the first marginals c as the origin, S_t = Σ (x − c) and Q_t = Σ (x − c)², the mean is c + S_t/t, and the
    sample variance is (Q_t − S_t²/t)/(t − 1). Sums go on from block to block in order, so that blocks do not show.

    >>> mean = RunningMean(1)
    >>> mean.add(np.array([[1.0], [2.0]])).ravel(), mean.add(np.array([[6.0]])).ravel()
    (array([1. , 1.5]), array([3.]))
    >>> mean.mean, mean.standard_errors.round(3)
    (array([3.]), array([1.528]))
    """

    def __init__(self, players: int) -> None:
        self.count = 0
        self._means: Vector = np.zeros((1, players))
        self._errors: Vector = np.full((1, players), np.inf)
        self._origin: Vector = np.zeros(players)
        self._sums: Vector = np.zeros((2, 1, players))

    def add(self, marginals: Vector) -> Vector:
        """The means after each of the block's permutations: [block, players]."""
        if self.count == 0:
            self._origin = marginals[0]
        grown = np.empty((2, len(marginals) + 1, marginals.shape[1]))
        grown[:, 0] = self._sums[:, -1]
        np.subtract(marginals, self._origin, out=grown[0, 1:])
        np.square(grown[0, 1:], out=grown[1, 1:])
        self._sums = sums, squares = grown.cumsum(axis=1)[:, 1:]
        counts = np.arange(self.count + 1.0, self.count + 1 + len(marginals))[:, None]
        self._means = self._origin + sums / counts
        spread = np.maximum(squares - sums * sums / counts, 0.0)
        self._errors = np.sqrt(spread / (np.maximum(counts - 1, 1) * counts))
        if self.count == 0:
            self._errors[0] = np.inf
        self.count += len(marginals)
        return self._means

    def cut(self, dropped: int) -> None:
        """Forgets the last permutations of the latest block."""
        if dropped:
            self.count -= dropped
            self._means, self._errors = self._means[:-dropped], self._errors[:-dropped]
            self._sums = self._sums[:, :-dropped]

    @property
    def mean(self) -> Vector:
        latest: Vector = self._means[-1]
        return latest

    @property
    def standard_errors(self) -> Vector:
        """√(s²/T) with s² the sample variance; infinite before the second permutation."""
        latest: Vector = self._errors[-1]
        return latest

    @property
    def errors_along(self) -> Vector:
        """The standard errors after each permutation of the latest block."""
        return self._errors


@dataclass(frozen=True)
class Shuffle:
    """Permutation number t of `players`, from (seed, t) alone."""

    players: int
    seed: int
    purpose: str = "permutation"

    def __call__(self, number: int) -> NDArray[np.int64]:
        order: NDArray[np.int64] = _shuffled(self.players, self.seed, self.purpose, number // _BLOCK)[number % _BLOCK]
        return order

    def block(self, first: int, count: int) -> Orders:
        """Permutations number `first` and on."""
        numbers = range(first // _BLOCK, (first + count - 1) // _BLOCK + 1)
        drawn = [_shuffled(self.players, self.seed, self.purpose, number) for number in numbers]
        orders: Orders = (drawn[0] if len(drawn) == 1 else np.concatenate(drawn))[first % _BLOCK :][:count]
        return orders


_BLOCK = 128
"""Permutations are drawn by the block: setting up a generator costs as much as a hundred shuffles of ten players."""


@lru_cache(maxsize=64)
def _shuffled(players: int, seed: int, purpose: str, block: int) -> Orders:
    ordered = np.broadcast_to(np.arange(players), (_BLOCK, players))
    return stream(seed, block, purpose).permuted(ordered, axis=1)


def first_block(stop: Rule, batch: int) -> int:
    """How many permutations are surely needed, and up to `batch` more."""
    rule = capped(stop)
    return math.ceil(min(rule.earliest - 1 + batch, rule.permutations_left(History((), np.zeros(0), 0))))


class Averaging:
    """Mean marginal contributions over permutations, block by block, until a rule says stop.

    Blocks are worked out ahead and then cut: the rule is asked after every permutation (or every `check_every` of
    them), as if they came one by one, and what lies beyond the cut is dropped. The cost of a block is spread evenly
    over its permutations. A block has `batch` permutations; the first has `lead`, where that is more.
    """

    def __init__(
        self,
        shuffle: Callable[[int], NDArray[np.int64]],
        players: int,
        stop: Rule,
        tally: Tally,
        *,
        batch: int,
        lead: int = 0,
        check_every: int = 1,
    ) -> None:
        self.running = RunningMean(players)
        self.stopped: str | None = None
        self._rule = capped(stop)
        self._shuffle, self._tally = shuffle, tally
        self._batch, self._lead, self._check_every = batch, max(batch, lead), check_every
        self._latest: Vector = np.empty((0, players))
        self._history = History((), self.running.standard_errors, 0)
        self._start = self._before = tally.now()

    def orders(self) -> Orders:
        """The next block of permutations, numbers `running.count` and on."""
        first = self.running.count
        size = self._batch if first else self._lead
        block = max(self._check_every, math.ceil(min(size, self._rule.permutations_left(self._history))))
        self._before = self._tally.now()
        if isinstance(self._shuffle, Shuffle):
            return self._shuffle.block(first, block)
        return np.stack([self._shuffle(t) for t in range(first, first + block)])

    def add(self, marginals: Vector) -> None:
        """Takes the marginal contributions in the permutations of `orders`, [block, players] by player."""
        begun, rule = self.running.count, self._rule
        estimates = np.concatenate([self._latest, self.running.add(marginals)])
        earlier, during = len(self._latest), self._tally.now() - self._before
        before = self._before - self._start
        histories = Histories(estimates, self.running.errors_along, earlier, begun, before, during)
        self._latest = estimates[-rule.memory :]
        asked = np.arange(begun + 1, begun + 1 + len(histories))
        asked = (asked >= rule.earliest) & (asked % self._check_every == 0)
        stops = asked & rule.stops(histories) if asked.any() else asked
        last = int(stops.argmax())
        stopped = bool(stops[last])
        if not stopped:
            last = len(histories) - 1
        self._history = histories.at(last)
        if stopped:
            self.stopped = rule.reason(self._history)
            assert self.stopped is not None
            self.running.cut(len(histories) - 1 - last)

    @property
    def share(self) -> float:
        """A guess which share of the permutations is done."""
        return 1.0 if self.stopped is not None else self._rule.share(self._history)


def credit_in_order(orders: Orders, worths: Vector) -> Vector:
    """Each player's rise in worth where it joins: [P, n + 1] worths along the orders → [P, n] by player.

    >>> credit_in_order(np.array([[2, 0, 1]]), np.array([[0.0, 5.0, 5.0, 9.0]]))
    array([[0., 4., 5.]])
    """
    marginals = np.empty(orders.shape)
    marginals[np.arange(len(orders))[:, None], orders] = worths[:, 1:] - worths[:, :-1]
    return marginals
