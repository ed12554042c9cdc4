"""Averaging, the paper's learner: lines 7, 8 and 10 of Algorithm 1. An answer is an update of all parameters.

Departures from the paper. A reply may fail: it counts as a gain of zero (where gains are `shapley`: as no better
than the worst of its round), is left out of the average, and is not paid. Where the round's model has no finite
utility although every update by itself leads to one, the longest update is void, and then the next, until it has one.
A consumer with training rows of its own takes part in the average of every round with its own update, as one more draw
that costs nothing.

Gains. The paper's is that of an update alone, U(w + γg_i) − U(w). It flatters updates that hardly move the model: once
the model is good, a single update does harm alone although the average of several helps. A sampler may ask for
`shapley` gains instead: the provider's share of the round's rise, in the game whose players are the draws and whose
coalitions S reach w(S) = w + γ/K · Σ_{j in S} g_j. Halfway, at m = w + γ/2K · Σ g_j, the difference

    U(m + γ/2K · g_i) − U(m − γ/2K · g_i)

is the Shapley value of draw i, exactly where U is quadratic along the moves; then the gains of a round, with the
consumer's own share, add up to its rise, and an update of zero gains nothing. With an aggregator that is not a mean it
is the same difference: what the update would have brought to a mean. Where a model of such rounds has no finite
utility, updates are looked at alone, to find out whose it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.codes import Code
from databazaar.engines.protocol import DIVERGES, NO_UTILITY, TOO_FAR, length
from databazaar.learning.models import LARGE
from databazaar.learning.task import Schedule, step_at
from databazaar.learning.utilities import Scores
from databazaar.training.parameters import Parameters, ParameterTraining, vector_of
from databazaar.training.protocol import Learned, Lesson, Memory, Model

AGGREGATOR = "aggregator"
"""What the aggregator's state is called in the memory."""
OwnUpdate = Callable[[Tensor, int], Tensor]
"""The update that rows of the consumer's give to these parameters in this round."""


@dataclass(frozen=True)
class Proposed:
    """The models that a round scores, formed when they are looked at. In the last row is the model that the round comes
    to if no reply turns out to be invalid when it is scored; the others have a row for each provider asked: w + γg_i
    for gains `alone`, and for `shapley` gains half the round's move with all of its part, followed by as many with none
    of it.

    The consumer's `own` update, where there is one, counts as one more draw; alone it moves nothing. Those that are
    left out are valid, but not in the average: their gains are what it would gain with them.
    """

    aggregator: Aggregator
    lesson: Lesson
    step: float
    own: Tensor | None = None

    @property
    def params(self) -> Tensor:
        """The model that the round began with."""
        return vector_of(self.lesson.model)

    @cached_property
    def good(self) -> list[int]:
        """The draws that the last row counts."""
        void = {*self.lesson.replies.failures, *self.lesson.left_out}
        return [i for i in self.lesson.drawn.draws.tolist() if i not in void]

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor]:
        """The model of the last row, and the aggregator's new state."""
        return self.moved(self.good)

    def moved(self, good: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Line 10: the model after the updates of the `good` draws, in their order, and the aggregator's new state."""
        params, updates, asked = self.params, self.lesson.replies.updates, self.lesson.drawn.asked
        before = self.lesson.memory[AGGREGATOR]
        if not good:
            return params, before
        rows = torch.tensor([asked.index(i) for i in good])
        chosen = updates[rows.to(updates.device, non_blocking=True)]  # a plain list would wait for the device
        if self.own is not None:
            chosen = torch.cat([chosen, self.own[None]])
        combined, move = self.aggregator.combine(before, chosen, self.step)
        return params + move, combined

    @property
    def models(self) -> Tensor:
        """All of them, one a row."""
        return torch.cat([self._before(slice(None)), self.reached[0][None]])

    def parts(self) -> Iterator[Tensor]:
        """All of them at once; large ones one after the other, and the last only when the others are gone."""
        if len(self.params) <= LARGE:
            yield self.models
            return
        count = len(self.lesson.drawn.asked) * (2 if self.lesson.gains == "shapley" else 1)
        yield from (self._before(slice(row, row + 1)) for row in range(count))
        yield self.reached[0][None]

    def _before(self, rows: slice) -> Tensor:
        """Some of those before the last."""
        if self.lesson.gains == "shapley":
            return self._halfway(rows)
        return (self.step * self.lesson.replies.updates[rows]).add_(self.params)

    def _halfway(self, rows: slice) -> Tensor:
        """Half of the move, but of one provider's part all (first those asked, one a row) or nothing (then again). One
        that is left out has no part in the others' rows.

        The consumer's update, one more draw, is a player like the others: there is half of it in every row.
        """
        lesson, own = self.lesson, int(self.own is not None)
        asked = lesson.drawn.asked
        if all(i in lesson.replies.failures for i in asked):
            return self.params.expand(2 * len(asked), -1)[rows]
        weights = []
        for whole, i in [(whole, i) for whole in (1.0, 0.0) for i in asked][rows]:
            draws = [*self.good, i] if i in lesson.left_out else self.good
            share = self.step / max(1, len(draws) + own)
            of_asked = [share * (draws.count(j) * (whole if j == i else 0.5)) for j in asked]
            weights.append([*of_asked, *[share * 0.5] * own])
        updates = lesson.replies.updates
        updates = updates if self.own is None else torch.cat([updates, self.own[None]])
        return (torch.tensor(weights).to(updates) @ updates).add_(self.params)


@dataclass(frozen=True, eq=False)
class AveragingTraining(ParameterTraining):
    """`own` gives the consumer's own update, where it has rows to train on; `step` is the paper's γ."""

    aggregator: Aggregator
    step: float | Schedule = 1.0
    own: OwnUpdate | None = None

    def init(self, model: Model) -> Memory:
        return {AGGREGATOR: self.aggregator.init(vector_of(model))}

    def learn(self, lesson: Lesson) -> Learned:
        own = None if self.own is None else self.own(vector_of(lesson.model), lesson.round)
        proposed = Proposed(self.aggregator, lesson, step_at(self.step, lesson.round), own)
        scores = self.evaluator.score_parts(proposed.parts())
        if lesson.gains != "alone" and not np.isfinite(scores.utility).all():
            proposed = replace(proposed, lesson=replace(lesson, gains="alone"))
            scores = self.evaluator.score_parts(proposed.parts())
        failures = dict(lesson.replies.failures)
        while True:
            gains, reasons = _gains(proposed, scores, failures)
            params, combined, reached = self._reached(proposed, scores, gains)
            if np.isfinite(reached.utility[0]):
                break
            longest = _longest(lesson, gains)
            if longest is None:  # a utility that has had a value here, and has none now
                reached = lesson.unchanged
                break
            failures[longest] = DIVERGES
        model = lesson.model if params is vector_of(lesson.model) else Parameters(params)
        return Learned(gains, reasons, model, {AGGREGATOR: combined}, reached)

    def _reached(
        self, proposed: Proposed, scores: Scores, gains: Mapping[int, float | None]
    ) -> tuple[Tensor, Tensor, Scores]:
        """Line 10, without replies that have no gain and those left out: the model, the aggregator's new state, and the
        model's scores."""
        lesson = proposed.lesson
        good = [i for i in lesson.drawn.draws.tolist() if gains[i] is not None and i not in lesson.left_out]
        if good == proposed.good:
            return *proposed.reached, Scores(scores.utility[-1:], None if scores.loss is None else scores.loss[-1:])
        params, combined = proposed.moved(good)
        return params, combined, self.evaluator.score(params[None])


def _gains(
    proposed: Proposed, scores: Scores, failures: Mapping[int, Code]
) -> tuple[dict[int, float | None], dict[int, Code]]:
    """The gain of each provider asked, None where its reply is invalid, and the reasons for those. A `shapley` gain is
    shared among the provider's draws."""
    lesson, others = proposed.lesson, scores.utility[:-1]
    asked, draws, reasons = lesson.drawn.asked, lesson.drawn.draws.tolist(), dict(failures)
    if lesson.gains == "alone":
        with np.errstate(over="ignore", invalid="ignore"):
            rises = others - lesson.utility
        for row in np.flatnonzero(~np.isfinite(rises)).tolist():
            reasons.setdefault(asked[row], TOO_FAR if np.isfinite(others[row]) else NO_UTILITY)
    else:
        rises = (others[: len(asked)] - others[len(asked) :]) / [draws.count(i) for i in asked]
    return {i: None if i in reasons else rise for i, rise in zip(asked, rises.tolist(), strict=True)}, reasons


def _longest(lesson: Lesson, gains: Mapping[int, float | None]) -> int | None:
    """Whose update, of those that a model without a finite utility counts, is the longest; None where it counts none.
    What makes numbers overflow is long, so an ordinary update keeps its place."""
    updates = zip(lesson.replies.updates, lesson.drawn.asked, strict=True)
    counted = [(update, i) for update, i in updates if gains[i] is not None]
    return max((length(update), i) for update, i in counted)[1] if counted else None
