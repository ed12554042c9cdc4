"""The game between the providers of a round, in which a coalition is worth the utility of w + Σ_i c_i g_i."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Replies
from databazaar.errors import BazaarError
from databazaar.learning.utilities import Evaluator
from databazaar.valuation.context import Context
from databazaar.valuation.games import Coalitions, Game
from databazaar.valuation.result import Vector

Aggregate = Literal["sum", "mean"]

AT_ONCE = 2**31
"""A scorer parts coalitions by itself."""

PLAIN_FLOATS = 2**26
"""Parameters of the models that are formed at a time (256 MiB)."""

Weights = NDArray[np.float64]
"""Coefficients c, one model per row: [m, K]."""


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
        sizes = np.maximum(coalitions.sum(1, keepdims=True), 1) if aggregate == "mean" else 1
        return scorer(np.asarray(step * coalitions / sizes, dtype=np.float64))  # γ a member, or γ over their number

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


def _chosen(updates: Tensor, rows: list[int]) -> Tensor:
    """These rows, without a copy where they are all of them."""
    return updates if len(rows) == len(updates) else updates[rows]


class Scorer:
    """Utilities [m] of the models w + Σ_i c_i g_i for coefficients [m, K]. Forms every model: right for any model and
    any utility."""

    def __init__(self, evaluator: Evaluator, params: Tensor, updates: Tensor) -> None:
        self.evaluator = evaluator
        self._params, self._updates = params, updates

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        weights = torch.from_numpy(coefficients).to(self._updates)
        parts = torch.split(weights, max(1, PLAIN_FLOATS // len(self._params)))
        models = (torch.addmm(self._params, part, self._updates) for part in parts)
        return np.concatenate([self.evaluator.score(stack).utility for stack in models])
