"""Lessons in which everybody is asked in every round: what a learner makes of all of these providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from databazaar.engines import Ask, Replies
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn
from databazaar.roster import RoundBudget
from databazaar.training import Learned, Lesson, Model, Training


def lessons(
    training: Training,
    model: Model,
    members: Sequence[int],
    ask: Callable[[Ask], Replies],
    rounds: int,
    seed: int,
    values_rows: bool = False,
) -> Iterator[tuple[Lesson, Learned]]:
    """Round by round, from this model on; `members` are places of providers, and nobody may be one."""
    memory, scores, n = training.init(model), training.score(model), max([*members, 0]) + 1
    drawn = Drawn(
        np.array(members, dtype=np.int64),
        np.full(len(members), 1 / max(1, len(members))),
        RoundBudget(len(members), np.ones(n, dtype=np.int64)),
    )
    for t in range(rounds if len(members) else 0):
        replies = ask(Ask(training.question(model), list(members), t, seed))
        utility, loss = first(scores)
        lesson = Lesson(model, memory, utility, loss, drawn, replies, t, spent=t / rounds, values_rows=values_rows)
        learned = training.learn(lesson)
        model, memory, scores = learned.model, learned.memory, learned.scores
        yield lesson, learned


def first(scores: Scores) -> tuple[float, float | None]:
    """The utility and the loss of one model."""
    return float(scores.utility[0]), None if scores.loss is None else float(scores.loss[0])
