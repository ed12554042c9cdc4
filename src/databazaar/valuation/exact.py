"""Exact Shapley values, from the worth of all 2ⁿ coalitions, and leave-one-out.

    φ_i = Σ_{S ∌ i} |S|! (n − |S| − 1)! / n! · (v(S ∪ i) − v(S))

Shapley (1953). For n up to 20 players; the baseline that every estimator here is tested against.

Leave-one-out is what the whole loses when one provider is missing, v(N) − v(N ∖ i): the oldest and cheapest value, by
n + 1 trainings. Two providers with the same data are both worth nothing by it, which is why Shapley values exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.valuation.games import Game, training_game
from databazaar.valuation.method import Context, Method
from databazaar.valuation.result import ValuationResult

MOST_PLAYERS = 20


@dataclass(frozen=True, kw_only=True)
class ExactShapley(Method):
    """Trains a model on every coalition of providers, for `rounds` rounds, and gives their exact Shapley values."""

    rounds: int = 5
    kind: ClassVar[str] = "exact"

    def validate(self, consumer: Consumer, providers: Sequence[Provider]) -> None:
        super().validate(consumer, providers)
        _refuse_many(len(providers))

    def value(self, context: Context) -> ValuationResult:
        return context.finished(shapley_exact(training_game(context, self.rounds, self.seed)))


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Method):
    """Trains with everybody, and once without each provider, for `rounds` rounds."""

    rounds: int = 5
    kind: ClassVar[str] = "loo"

    def value(self, context: Context) -> ValuationResult:
        return context.finished(leave_one_out_game(training_game(context, self.rounds, self.seed)))


def shapley_exact(game: Game) -> ValuationResult:
    """Exact Shapley values of a game of at most 20 players.

    >>> glove = Game(["left", "right", "right too"], lambda s: (s[:, 0] & s[:, 1:].any(1)).astype(float))
    >>> shapley_exact(glove).values.round(3)
    array([0.667, 0.167, 0.167])
    """
    n = len(game.players)
    _refuse_many(n)
    start = game.tally.now()
    worths = game.table()
    sizes = np.zeros(1, dtype=np.int64)
    for _ in range(n):
        sizes = np.concatenate([sizes, sizes + 1])
    weights = np.array([1 / (n * comb(n - 1, size)) for size in range(n)])
    values = np.empty(n)
    for i in range(n):
        # [higher players, with or without i, lower players]
        pairs, size = worths.reshape(-1, 2, 2**i), sizes.reshape(-1, 2, 2**i)[:, 0]
        values[i] = (weights[size] * (pairs[:, 1] - pairs[:, 0])).sum()
    cost = game.tally.now() - start
    return ValuationResult("exact", game.players, values, np.zeros(n), f"all {2**n:,} coalitions", cost)


def _refuse_many(n: int) -> None:
    if n > MOST_PLAYERS:
        raise BazaarError(
            f"exact needs the worth of every coalition, 2^{n} of them for {n} providers: "
            f"it takes at most {MOST_PLAYERS}, so use tmc, which samples permutations"
        )


def leave_one_out_game(game: Game) -> ValuationResult:
    """v(N) − v(N ∖ i) for every player of a game.

    >>> leave_one_out_game(Game(["a", "b"], lambda s: s @ np.array([2.0, 3.0]))).values
    array([2., 3.])
    """
    n = len(game.players)
    start = game.tally.now()
    worths = game.value(np.concatenate([game.everybody, ~np.eye(n, dtype=bool)]))
    stopped, cost = f"everybody, and each of {n:,} left out once", game.tally.now() - start
    return ValuationResult("leave-one-out", game.players, worths[0] - worths[1:], np.zeros(n), stopped, cost)
