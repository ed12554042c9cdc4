"""The game that federated methods value in every round, and what its coalitions are worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Replies
from databazaar.errors import BazaarError
from databazaar.valuation.context import Context
from databazaar.valuation.games import TABLE_PLAYERS, Coalitions, Game, all_coalitions, is_everything
from databazaar.valuation.permutations import Orders
from databazaar.valuation.scoring import FirstLayer, Scorer, scorer_of

Vector = NDArray[np.float64]
Aggregate = Literal["sum", "mean"]

AT_ONCE = 2**31
"""A scorer parts coalitions by itself."""

MOST_BITS = 62
"""So many players make a number of a coalition."""

TABLE_FLOATS = 2**20
"""Where all coalitions' models make no more floats than this, scoring all is quicker than choosing some."""


@dataclass(frozen=True, eq=False)
class Opening:
    """A round before it is known whose update alone leaves a model of finite utility: only those will be players."""

    context: Context
    scorer: Scorer
    updates: Tensor
    asked: list[int]
    rows: list[int]
    step: float
    aggregate: Aggregate

    @classmethod
    def of(
        cls,
        context: Context,
        layer: FirstLayer | None,
        w: Tensor,
        replies: Replies,
        asked: list[int],
        step: float,
        aggregate: Aggregate,
    ) -> Opening | None:
        """None where nobody gave a valid update."""
        rows = [row for row, provider in enumerate(asked) if provider not in replies.failures]
        if not rows:
            return None
        updates = _chosen(replies.updates, rows)
        scorer = scorer_of(layer, context.evaluator, w, updates)
        return cls(context, scorer, updates, asked, rows, step, aggregate)

    def score(self, coalitions: Coalitions) -> Vector:
        return self.scorer(weights_of(coalitions, self.step, self.aggregate))

    def game(self, coalitions: Coalitions) -> RoundGame | None:
        """The game between those who can play, in which these coalitions are known; None where nobody can."""
        worths = self.score(coalitions)
        self.context.tally.utility_evaluations += len(worths)
        n = len(self.rows)
        nothing, *alone = worths[_rows_of_singles(coalitions)]
        if not np.isfinite(nothing):
            raise BazaarError(f"the model's own utility is {nothing}: lower the steps, or begin elsewhere")
        players = np.flatnonzero(np.isfinite(alone))
        if not len(players):
            return None
        if len(players) < n:
            among = ~coalitions[:, ~np.isfinite(alone)].any(1)
            coalitions, worths = coalitions[among][:, players], worths[among]
        members = [self.asked[self.rows[i]] for i in players]
        ids = self.context.ids

        def worth(some: Coalitions) -> Vector:
            everybody = np.zeros((len(some), n), dtype=bool)
            everybody[:, players] = some
            return self.score(everybody)

        game = Game([ids[i] for i in members], worth, batch=AT_ONCE, tally=self.context.tally)
        game.know(coalitions, worths)
        return RoundGame(game, members, _chosen(self.updates, players.tolist()))


@dataclass(frozen=True, eq=False)
class RoundGame:
    """The game between the providers of one round: who they are in the market, and their updates."""

    game: Game
    members: list[int]
    updates: Tensor


def all_are_cheap(players: int, cost: float) -> bool:
    """Whether to score all coalitions of a round, at this cost of a model."""
    return players <= TABLE_PLAYERS and 2**players * cost <= TABLE_FLOATS


def singles(players: int) -> Coalitions:
    """Nobody, and everybody alone."""
    return np.concatenate([np.zeros((1, players), dtype=bool), np.eye(players, dtype=bool)])


def _rows_of_singles(coalitions: Coalitions) -> NDArray[np.int64]:
    """Where nobody stands, and where everybody alone."""
    if is_everything(coalitions):
        return np.concatenate([[0], 1 << np.arange(coalitions.shape[1])])
    sizes = coalitions.sum(1)
    alone = np.flatnonzero(sizes == 1)
    return np.concatenate([[sizes.argmin()], alone[coalitions[alone].argmax(1).argsort()]])


def along(orders: Orders) -> Coalitions:
    """`singles`, and those who have joined anywhere along these orders; each coalition once."""
    n = orders.shape[1]
    if n > MOST_BITS:
        joined = np.argsort(orders, axis=1)[:, None, :] <= np.arange(n)[:, None]
        return np.unique(np.concatenate([singles(n), joined.reshape(-1, n)]), axis=0)
    bits = 1 << np.arange(n)
    numbers = np.unique(np.concatenate([[0], bits, np.cumsum(1 << orders, axis=1).ravel()]))
    return np.asarray(numbers[:, None] & bits > 0)


def weights_of(coalitions: Coalitions, step: float, aggregate: Aggregate) -> Vector:
    """γ for each member of a coalition, or γ over their number. All coalitions of a few players are kept."""
    if is_everything(coalitions):
        return _all_weights(coalitions.shape[1], step, aggregate)
    return _weights_of(coalitions, step, aggregate)


def _weights_of(coalitions: Coalitions, step: float, aggregate: Aggregate) -> Vector:
    sizes = np.maximum(coalitions.sum(1, keepdims=True), 1) if aggregate == "mean" else 1
    return np.asarray(step * coalitions / sizes, dtype=np.float64)


@lru_cache(maxsize=8)
def _all_weights(players: int, step: float, aggregate: Aggregate) -> Vector:
    return _weights_of(all_coalitions(players), step, aggregate)


def _chosen(updates: Tensor, rows: list[int]) -> Tensor:
    return updates if len(rows) == len(updates) else updates[rows]
