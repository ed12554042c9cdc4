"""What a round comes to, as a pure function of its answers: lines 7 to 10 of Algorithm 1.

How answers become gains and the next model is the learner's (databazaar/training); what is paid and what the sampler
learns are the rules'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from databazaar.learning.utilities import Scores
from databazaar.ledger import RuleBook, Settlement
from databazaar.market.inspection.inspection import InspectedReplies
from databazaar.market.state import Best, State
from databazaar.row_values import added
from databazaar.training import Learned, Lesson, Training


@dataclass(frozen=True)
class Round:
    """A round whose answers are here, with all that its outcome depends on; `watched` is what a defence has seen in
    the answers, where there is one."""

    rules: RuleBook
    training: Training
    state: State
    lesson: Lesson
    watched: InspectedReplies | None = None


Outcome = tuple[State, Settlement]
"""What a round comes to: the state that the next one starts from, and what the ledger is told of this one."""


def conclude(round: Round) -> Outcome:
    """Lines 7 to 10: the gains, what is paid and learned, and the model, which has a finite utility."""
    return _settled(round, round.training.learn(round.lesson))


def _settled(round: Round, learned: Learned) -> Outcome:
    """What is paid and learned (lines 7 to 9), and the state after the round."""
    state, drawn, watched = round.state, round.lesson.drawn, round.watched
    draws, probabilities = drawn.draws.tolist(), drawn.probabilities.tolist()
    gains = [learned.gains[i] for i in draws]
    findings, kept = (None, state.watch) if watched is None else watched.concluded(learned.gains)
    settled = round.rules.settle(state.sampler, drawn, gains, probabilities, findings)
    utility, loss = float(learned.scores.utility[0]), first_loss(learned.scores)
    settlement = Settlement(
        gains=gains,
        failures=[learned.failures.get(i) for i in draws],
        probabilities=probabilities,
        paid=settled.paid,
        utility=state.utility,
        loss=state.loss,
        reached=utility,
        reached_loss=loss,
        held=settled.held,
        released=settled.released,
        returned=settled.returned,
        findings=findings,
        replies=[round.lesson.replies.signed.get(i) for i in draws],
    )
    after = State(
        round=state.round + 1,
        model=learned.model,
        utility=utility,
        loss=loss,
        sampler=settled.state,
        memory=learned.memory,
        best=state.best if utility <= state.best.utility else Best(state.round + 1, learned.model, utility),
        watch=kept,
        rows=None if state.rows is None else added(state.rows, learned.rows, round.lesson.replies.places, state.loss),
    )
    return after, settlement


def first_loss(scores: Scores) -> float | None:
    """The first loss as the ledger takes it: exp(−∞) = 0 is a utility, but ∞ is no number in JSON."""
    losses: Any = scores.loss
    return None if losses is None or not np.isfinite(losses[0]) else float(losses[0])
