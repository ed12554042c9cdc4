"""Cooperative games: n players, and what every coalition of them is worth.

In the retraining game a coalition is worth the utility of a model trained on its members alone.

Training is FedAvg with full participation: in each of a fixed number of rounds every member is asked for an update of
the current model, and their mean is added. The empty coalition is worth the utility of the untrained model. Many
coalitions are trained side by side, as rows of one stacked computation. A provider works through its data in the same
order in every coalition (randomness derives from seed, round and provider), so the game is one fixed function.

Where the model has a learner of its own that takes rows, as trees have, that learner trains a coalition: every member
is asked in every round, and a round of averaging, which has many local steps, stands for several of its rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Mean
from databazaar.engines import Ask
from databazaar.errors import BazaarError
from databazaar.learners import Market, learner_for
from databazaar.valuation.lessons import lessons
from databazaar.valuation.method import Context
from databazaar.valuation.result import Tally, Vector

GROWN = 8
"""Rounds of a learner of rows for each of averaging."""
CHUNK_FLOATS = 2**26
"""Parameters of the coalitions trained side by side are kept under this many floats (256 MiB)."""

Coalitions = NDArray[np.bool_]
"""One coalition per row, one player per column."""

CoalitionWorth = Callable[[Coalitions], Vector]


class Game:
    """Players and the worth of coalitions [m, n] → [m]. No coalition is ever worked out twice.

    `worth` is asked for at most `batch` coalitions at a time, each different from all before. `tally` counts them.

    >>> glove = Game(["left", "right", "right too"], lambda s: (s[:, 0] & s[:, 1:].any(1)).astype(float))
    >>> glove.value(np.array([[True, False, True], [False, True, True]]))
    array([1., 0.])
    >>> glove.tally.utility_evaluations
    2
    """

    def __init__(
        self, players: Sequence[str], worth: CoalitionWorth, *, batch: int = 1024, tally: Tally | None = None
    ) -> None:
        if not players:
            raise BazaarError("a game needs at least one player")
        self.players = tuple(players)
        self.tally = tally or Tally()
        self._worth = worth
        self._batch = batch
        self._known: dict[bytes, float] = {}

    def value(self, coalitions: Coalitions) -> Vector:
        keys, fresh = _keys(coalitions), dict[bytes, int]()
        for row, key in enumerate(keys):
            if key not in self._known:
                fresh.setdefault(key, row)
        if fresh:
            self._known.update(zip(fresh, self._work_out(coalitions[list(fresh.values())]).tolist(), strict=True))
        return np.array([self._known[key] for key in keys])

    def know(self, coalitions: Coalitions, worths: Vector) -> None:
        """Takes worths that were worked out, and counted, elsewhere."""
        self._known.update(zip(_keys(coalitions), worths.tolist(), strict=True))

    def _work_out(self, coalitions: Coalitions) -> Vector:
        parts = [coalitions[start : start + self._batch] for start in range(0, len(coalitions), self._batch)]
        worths = np.concatenate([np.asarray(self._worth(part), dtype=np.float64) for part in parts])
        if worths.shape != (len(coalitions),):
            raise BazaarError(f"the game's worth must be one number per coalition, not of shape {worths.shape}")
        if not np.isfinite(worths).all():
            members = [self.players[i] for i in np.flatnonzero(coalitions[~np.isfinite(worths)][0])]
            shown = ", ".join(members[:5]) + (" and others" if len(members) > 5 else "")
            raise BazaarError(
                f"the coalition of {shown or 'nobody'} has no finite utility: "
                "lower the steps, or look at these providers"
            )
        self.tally.utility_evaluations += len(coalitions)
        return worths

    def table(self) -> Vector:
        """The worths of all 2ⁿ coalitions; player i belongs to coalition number c where bit i of c is set."""
        n = len(self.players)
        bits = np.arange(2**n, dtype=np.uint32)[:, None] >> np.arange(n, dtype=np.uint32)
        return self.value(np.asarray(bits & 1 == 1))

    @property
    def everybody(self) -> Coalitions:
        return np.ones((1, len(self.players)), dtype=bool)

    @property
    def nobody(self) -> Coalitions:
        return np.zeros((1, len(self.players)), dtype=bool)


def _keys(coalitions: Coalitions) -> list[bytes]:
    return [row.tobytes() for row in np.packbits(coalitions, axis=1)]


def training_game(context: Context, rounds: int = 5, seed: int = 0) -> Game:
    """The game whose players are the market's providers. `rounds` is how long each coalition is trained."""
    if rounds < 1:
        raise BazaarError(f"rounds = {rounds} must be at least 1: a coalition is trained for that many rounds")

    if learner_for(context.consumer.model).rows is not None:
        return Game(context.ids, lambda these: _learned(context, these, GROWN * rounds, seed), tally=context.tally)

    def worth(coalitions: Coalitions) -> NDArray[np.float64]:
        context.tally.trainings += int(coalitions.any(1).sum())
        return context.evaluator.score(train(context, coalitions, rounds, seed)).utility

    width = max(1, len(context.start()))
    batch = max(1, CHUNK_FLOATS // (width * len(context.providers)))
    return Game(context.ids, worth, batch=batch, tally=context.tally)


def _learned(context: Context, coalitions: Coalitions, rounds: int, seed: int) -> Vector:
    """The utility that the model's own learner reaches with each coalition."""
    consumer = context.consumer
    learner = learner_for(consumer.model)
    training = learner.training(Market(consumer, Mean(), context.engine.device, seed, rounds))
    found = []
    for members in (np.flatnonzero(row).tolist() for row in coalitions):
        context.tally.trainings += bool(members)
        begun = learner.begin(consumer)
        scores = training.score(begun) if not members else None
        for _, learned in lessons(training, begun, members, lambda ask: context.ask([ask])[0], rounds, seed):
            scores = learned.scores
        assert scores is not None
        found.append(float(scores.utility[0]))
    return np.array(found)


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
