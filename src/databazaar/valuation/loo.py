"""Leave-one-out: what the whole loses when one provider is missing, v(N) − v(N ∖ i).

The oldest and cheapest value: n + 1 trainings. Two providers with the same data are both worth nothing by it, which
is why Shapley values exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.valuation.context import Context
from databazaar.valuation.games import Game
from databazaar.valuation.method import Method, as_function
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.training_game import training_game


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut(Method):
    """Trains with everybody, and once without each provider, for `rounds` rounds."""

    rounds: int = 5
    kind: ClassVar[str] = "loo"

    def value(self, context: Context) -> ValuationResult:
        return context.finished(leave_one_out_game(training_game(context, self.rounds, self.seed)))


leave_one_out = as_function(LeaveOneOut, "leave_one_out")
"""`LeaveOneOut` as one call."""


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
