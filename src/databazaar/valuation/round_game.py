"""The game that federated methods value in every round, and what its coalitions are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Replies
from databazaar.errors import BazaarError
from databazaar.valuation.context import Context
from databazaar.valuation.games import Coalitions, Game
from databazaar.valuation.scoring import Scorer, score_combinations

Vector = NDArray[np.float64]
Aggregate = Literal["sum", "mean"]

AT_ONCE = 2**31
"""A scorer parts coalitions by itself."""


@dataclass(frozen=True, eq=False)
class RoundGame:
    """The game between the providers of one round: who they are in the market, and their updates."""

    game: Game
    members: list[int]
    updates: Tensor


def round_game(
    context: Context,
    scorer_of: Callable[[Tensor], Scorer],
    replies: Replies,
    asked: list[int],
    step: float,
    aggregate: Aggregate,
) -> RoundGame | None:
    """The game between those whose update alone leaves a model of finite utility; None where nobody's does."""
    rows = [row for row, provider in enumerate(asked) if provider not in replies.failures]
    if not rows:
        return None
    updates, n = _chosen(replies.updates, rows), len(rows)
    scorer = scorer_of(updates)

    def score(coalitions: Coalitions) -> Vector:
        return score_combinations(context.engine, scorer, weights_of(coalitions, step, aggregate))

    singles = np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)])
    worths = score(singles)
    context.tally.utility_evaluations += len(worths)
    if not np.isfinite(worths[0]):
        raise BazaarError(f"the model's own utility is {worths[0]}: lower the steps, or begin elsewhere")
    players = np.flatnonzero(np.isfinite(worths[1:]))
    if not len(players):
        return None

    def worth(some: Coalitions) -> Vector:
        everybody = np.zeros((len(some), n), dtype=bool)
        everybody[:, players] = some
        return score(everybody)

    members = [asked[rows[i]] for i in players]
    game = Game([context.ids[i] for i in members], worth, batch=AT_ONCE, tally=context.tally)
    known = [0, *(1 + players)]
    game.know(singles[known][:, players], worths[known])
    return RoundGame(game, members, _chosen(updates, players.tolist()))


def weights_of(coalitions: Coalitions, step: float, aggregate: Aggregate) -> Vector:
    """γ for each member of a coalition, or γ over their number."""
    sizes = np.maximum(coalitions.sum(1, keepdims=True), 1) if aggregate == "mean" else 1
    return np.asarray(step * coalitions / sizes, dtype=np.float64)


def _chosen(updates: Tensor, rows: list[int]) -> Tensor:
    """These rows, without a copy where they are all of them."""
    return updates if len(rows) == len(updates) else updates[rows]
