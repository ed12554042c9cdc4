"""The retraining game: a coalition is worth the utility of a model trained on its members alone.

Training is FedAvg with full participation: in each of a fixed number of rounds every member is asked for an update of
the current model, and their mean is added. The empty coalition is worth the utility of the untrained model. Many
coalitions are trained side by side, as rows of one stacked computation. A provider works through its data in the same
order in every coalition (randomness derives from seed, round and provider), so the game is one fixed function.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Ask
from databazaar.errors import BazaarError
from databazaar.valuation.context import Context
from databazaar.valuation.games import Coalitions, Game

CHUNK_FLOATS = 2**26
"""Parameters of the coalitions trained side by side are kept under this many floats (256 MiB)."""


def training_game(context: Context, rounds: int = 5, seed: int = 0) -> Game:
    """The game whose players are the market's providers. `rounds` is how long each coalition is trained."""
    if rounds < 1:
        raise BazaarError(f"rounds = {rounds} must be at least 1: a coalition is trained for that many rounds")

    def worth(coalitions: Coalitions) -> NDArray[np.float64]:
        context.tally.trainings += int(coalitions.any(1).sum())
        return context.evaluator.score(train(context, coalitions, rounds, seed)).utility

    width = max(1, len(context.start()))
    batch = max(1, CHUNK_FLOATS // (width * len(context.providers)))
    return Game(context.ids, worth, batch=batch, tally=context.tally)


def train(context: Context, coalitions: Coalitions, rounds: int, seed: int) -> Tensor:
    """The final parameters of every coalition: [m, d]."""
    members = [np.flatnonzero(row).tolist() for row in coalitions]
    params = [context.start() for _ in members]
    trained = [row for row, asked in enumerate(members) if asked]
    for t in range(rounds if trained else 0):
        replies = context.ask([Ask(params[row], members[row], t, seed) for row in trained])
        for row, reply in zip(trained, replies, strict=True):
            valid = [place for place, member in enumerate(members[row]) if member not in reply.failures]
            if valid:
                params[row] = context.moved(params[row], reply.updates[valid], t)
    return torch.stack(params)
