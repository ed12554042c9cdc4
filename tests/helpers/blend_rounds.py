"""A round of a market whose model is a blend, as its learner gets it."""

from __future__ import annotations

import numpy as np
import torch

from databazaar import Arbiter
from databazaar.engines import Replies
from databazaar.ledger import Accounts, Drawn
from databazaar.roster import RoundBudget
from databazaar.training import Lesson
from databazaar.training.blending import BlendTraining


def first_round(arbiter: Arbiter) -> tuple[BlendTraining, Lesson]:
    """The first two providers answer with all their rows; the first is drawn twice."""
    run = arbiter.begin(Accounts(arbiter.rules))
    training, state = run.training, run.state
    assert isinstance(training, BlendTraining)
    drawn = Drawn(np.array([0, 1, 0]), np.ones(3), RoundBudget(3, np.ones(3, dtype=np.int64)))
    tables = {i: arbiter.providers[i].dataset for i in (0, 1)}
    places = {i: np.arange(len(table[1])) for i, table in tables.items()}
    answers = Replies(torch.empty(2, 0), {}, rows=tables, places=places)
    return training, Lesson(state.model, state.memory, state.utility, state.loss, drawn, answers, round=0)
