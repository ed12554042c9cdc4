"""What a round comes to, as a pure function of its replies: lines 7 to 10 of Algorithm 1.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.codes import Code
from databazaar.engines import Replies
from databazaar.engines.protocol import DIVERGES, NO_UTILITY, TOO_FAR
from databazaar.learning.models import LARGE
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Drawn, RuleBook, Settlement
from databazaar.market.inspection.inspection import InspectedReplies, length
from databazaar.market.state import Best, State


@dataclass(frozen=True)
class Proposed:
    """The models that a round scores, formed when they are looked at. In the last row is the model that the round comes
    to if no reply turns out to be invalid when it is scored; the others have a row for each provider asked: w + γg_i
    for gains `alone`, and for `shapley` gains half the round's move with all of its part, followed by as many with none
    of it.

    The consumer's `own` update, where there is one, counts as one more draw; alone it moves nothing. Those `left_out`
    are valid, but not in the average: their gains are what it would gain with them.
    """

    aggregator: Aggregator
    state: State
    drawn: Drawn
    replies: Replies
    step: float
    own: Tensor | None = None
    gains: str = "alone"
    left_out: frozenset[int] = frozenset()

    @cached_property
    def good(self) -> list[int]:
        """The draws that the last row counts."""
        return [i for i in self.drawn.draws.tolist() if i not in self.replies.failures and i not in self.left_out]

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor]:
        """The model of the last row, and the aggregator's new state."""
        return self.moved(self.good)

    def moved(self, good: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Line 10: the model after the updates of the `good` draws, in their order, and the aggregator's new state."""
        state, updates, asked = self.state, self.replies.updates, self.drawn.asked
        if not good:
            return state.params, state.aggregator
        rows = torch.tensor([asked.index(i) for i in good])
        chosen = updates[rows.to(updates.device, non_blocking=True)]  # a plain list would wait for the device
        if self.own is not None:
            chosen = torch.cat([chosen, self.own[None]])
        combined, move = self.aggregator.combine(state.aggregator, chosen, self.step)
        return state.params + move, combined

    @property
    def models(self) -> Tensor:
        """All of them, one a row."""
        return torch.cat([self._before(slice(None)), self.reached[0][None]])

    def parts(self) -> Iterator[Tensor]:
        """All of them at once; large ones one after the other, and the last only when the others are gone."""
        if len(self.state.params) <= LARGE:
            yield self.models
            return
        count = len(self.drawn.asked) * (2 if self.gains == "shapley" else 1)
        yield from (self._before(slice(row, row + 1)) for row in range(count))
        yield self.reached[0][None]

    def _before(self, rows: slice) -> Tensor:
        """Some of those before the last."""
        if self.gains == "shapley":
            return self._halfway(rows)
        return (self.step * self.replies.updates[rows]).add_(self.state.params)

    def _halfway(self, rows: slice) -> Tensor:
        """Half of the move, but of one provider's part all (first those asked, one a row) or nothing (then again). One
        that is left out has no part in the others' rows.

        The consumer's update, one more draw, is a player like the others: there is half of it in every row.
        """
        own, asked = int(self.own is not None), self.drawn.asked
        if all(i in self.replies.failures for i in asked):
            return self.state.params.expand(2 * len(asked), -1)[rows]
        weights = []
        for whole, i in [(whole, i) for whole in (1.0, 0.0) for i in asked][rows]:
            draws = [*self.good, i] if i in self.left_out else self.good
            share = self.step / max(1, len(draws) + own)
            of_asked = [share * (draws.count(j) * (whole if j == i else 0.5)) for j in asked]
            weights.append([*of_asked, *[share * 0.5] * own])
        updates = self.replies.updates if self.own is None else torch.cat([self.replies.updates, self.own[None]])
        return (torch.tensor(weights).to(updates) @ updates).add_(self.state.params)


@dataclass(frozen=True)
class Round:
    """A round whose replies are here, with all that its outcome depends on. `own` is the consumer's own update, and
    `watched` what a defence has seen in the replies, where there are such."""

    rules: RuleBook
    aggregator: Aggregator
    evaluator: Evaluator
    state: State
    drawn: Drawn
    replies: Replies
    step: float
    own: Tensor | None = None
    watched: InspectedReplies | None = None

    def proposed(self, gains: str) -> Proposed:
        left_out = frozenset() if self.watched is None else self.watched.left_out
        return Proposed(self.aggregator, self.state, self.drawn, self.replies, self.step, self.own, gains, left_out)


Outcome = tuple[State, Settlement]
"""What a round comes to: the state that the next one starts from, and what the ledger is told of this one."""


def conclude(round: Round) -> Outcome:
    """Lines 7 to 10: the gains, what is paid and learned, and the model, which has a finite utility."""
    proposed = round.proposed(round.rules.sampler.wants.gains)
    scores = round.evaluator.score_parts(proposed.parts())
    if proposed.gains != "alone" and not np.isfinite(scores.utility).all():
        proposed = round.proposed("alone")
        scores = round.evaluator.score_parts(proposed.parts())
    replies = round.replies
    while True:
        gains, reasons = _gains(round, replies, proposed, scores)
        params, combined, reached = _reached(round, proposed, scores, gains)
        if np.isfinite(reached.utility[0]):
            break
        longest = _longest(round.drawn, replies, gains)
        if longest is None:  # a utility that has had a value here, and has none now
            loss = np.nan if round.state.loss is None else round.state.loss
            reached = Scores(np.array([round.state.utility]), np.array([loss]))
            break
        replies = replace(replies, failures={**replies.failures, longest: DIVERGES})
    return _settled(round, gains, reasons, params, combined, reached)


def _gains(
    round: Round, replies: Replies, proposed: Proposed, scores: Scores
) -> tuple[dict[int, float | None], dict[int, Code]]:
    """The gain of each provider asked, None where its reply is invalid, and the reasons for those. A `shapley` gain is
    shared among the provider's draws."""
    asked, draws, reasons = round.drawn.asked, round.drawn.draws.tolist(), dict(replies.failures)
    others = scores.utility[:-1]
    if proposed.gains == "alone":
        with np.errstate(over="ignore", invalid="ignore"):
            rises = others - round.state.utility
        for row in np.flatnonzero(~np.isfinite(rises)).tolist():
            reasons.setdefault(asked[row], TOO_FAR if np.isfinite(others[row]) else NO_UTILITY)
    else:
        rises = (others[: len(asked)] - others[len(asked) :]) / [draws.count(i) for i in asked]
    return {i: None if i in reasons else rise for i, rise in zip(asked, rises.tolist(), strict=True)}, reasons


def _reached(
    round: Round, proposed: Proposed, scores: Scores, gains: Mapping[int, float | None]
) -> tuple[Tensor, Tensor, Scores]:
    """Line 10, without replies that have no gain and those left out: the model, the aggregator's new state, and the
    model's scores."""
    good = [i for i in round.drawn.draws.tolist() if gains[i] is not None and i not in proposed.left_out]
    if good == proposed.good:
        return *proposed.reached, Scores(scores.utility[-1:], None if scores.loss is None else scores.loss[-1:])
    params, combined = proposed.moved(good)
    return params, combined, round.evaluator.score(params[None])


def _longest(drawn: Drawn, replies: Replies, gains: Mapping[int, float | None]) -> int | None:
    """Whose update, of those that a model without a finite utility counts, is the longest; None where it counts none.
    What makes numbers overflow is long, so an ordinary update keeps its place."""
    counted = [(update, i) for update, i in zip(replies.updates, drawn.asked, strict=True) if gains[i] is not None]
    return max((length(update), i) for update, i in counted)[1] if counted else None


def _settled(
    round: Round,
    by_provider: Mapping[int, float | None],
    reasons: Mapping[int, Code],
    params: Tensor,
    combined: Tensor,
    reached: Scores,
) -> Outcome:
    """What is paid and learned (lines 7 to 9), and the state after the round."""
    state, drawn, watched = round.state, round.drawn, round.watched
    draws, probabilities = drawn.draws.tolist(), drawn.probabilities.tolist()
    gains = [by_provider[i] for i in draws]
    findings = None if watched is None else watched.findings
    settled = round.rules.settle(state.sampler, drawn, gains, probabilities, findings)
    utility, loss = float(reached.utility[0]), first_loss(reached)
    settlement = Settlement(
        gains=gains,
        failures=[reasons.get(i) for i in draws],
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
        replies=[round.replies.signed.get(i) for i in draws],
    )
    after = State(
        round=state.round + 1,
        params=params,
        utility=utility,
        loss=loss,
        sampler=settled.state,
        aggregator=combined,
        best=state.best if utility <= state.best.utility else Best(state.round + 1, params, utility),
        watch=state.watch if watched is None else watched.kept,
    )
    return after, settlement


def first_loss(scores: Scores) -> float | None:
    """The first loss as the ledger takes it: exp(−∞) = 0 is a utility, but ∞ is no number in JSON."""
    losses: Any = scores.loss
    return None if losses is None or not np.isfinite(losses[0]) else float(losses[0])
