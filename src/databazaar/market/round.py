"""What a round comes to, as a pure function of its replies: lines 7 to 10 of Algorithm 1.

Departures from the paper. A reply may fail: it counts as a gain of zero (where gains are measured together: as no
better than the worst of its round), is left out of the average, and is not paid. Where the round's model has no finite
utility although every update by itself leads to one, the longest update is void, and then the next, until it has one.
A consumer with training rows of its own takes part in the average of every round with its own update, as one more draw
that costs nothing.

Gains. The paper's is that of an update alone, U(w + γg_i) − U(w). It flatters updates that hardly move the model: once
the model is good, a single update does harm alone although the average of several helps. A sampler may ask for gains
`together` instead: what the round's model loses without the provider, U(w⁺) − U(w⁺ without i). Or for `shapley` gains:
its share of the round's rise, in the game whose players are the draws and whose coalitions S reach
w(S) = w + γ/K · Σ_{j in S} g_j. Halfway, at m = w + γ/2K · Σ g_j, the difference

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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.codes import Code
from databazaar.engines import Replies
from databazaar.engines.protocol import DIVERGES, NO_UTILITY, TOO_FAR
from databazaar.learning.models import LARGE
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.ledger import Drawn, RuleBook, Settlement
from databazaar.market.inspection.inspection import InspectedReplies
from databazaar.market.move import Move, length
from databazaar.market.state import Best, State


@dataclass(frozen=True)
class Proposed:
    """The models that a round scores, formed when they are looked at. In the last row is the model that the round comes
    to if no reply turns out to be invalid when it is scored; the others have a row for each provider asked: w + γg_i
    for gains `alone`, what the round comes to without it for gains `together`, and for `shapley` gains half the round's
    move with all of its part, followed by as many with none of it. `good` are the draws that the last row counts."""

    move: Move
    good: Sequence[int]
    gains: str = "alone"
    left_out: frozenset[int] = frozenset()

    @cached_property
    def reached(self) -> tuple[Tensor, Tensor]:
        """The model of the last row, and the aggregator's new state."""
        return self.move(self.good)

    @property
    def models(self) -> Tensor:
        """All of them, one a row."""
        return torch.cat([self._before(slice(None)), self.reached[0][None]])

    def parts(self) -> Iterator[Tensor]:
        """All of them at once; large ones one after the other, and the last only when the others are gone."""
        if len(self.move.state.params) <= LARGE:
            yield self.models
            return
        count = len(self.move.asked) * (2 if self.gains == "shapley" else 1)
        yield from (self._before(slice(row, row + 1)) for row in range(count))
        yield self.reached[0][None]

    def _before(self, rows: slice) -> Tensor:
        """Some of those before the last."""
        if self.gains == "together":
            return self.move.without_each(self.good, rows)
        if self.gains == "shapley":
            return self.move.halfway_with_and_without_each(self.good, rows)
        return self.move.alone(rows)


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
        return propose(self.aggregator, self.state, self.drawn, self.replies, self.step, self.own, gains, left_out)


Outcome = tuple[State, Settlement]
"""What a round comes to: the state that the next one starts from, and what the ledger is told of this one."""


class _Reached(NamedTuple):
    """The model of line 10, the aggregator's new state, and the model's scores."""

    params: Tensor
    aggregator: Tensor
    scores: Scores


def propose(
    aggregator: Aggregator,
    state: State,
    drawn: Drawn,
    replies: Replies,
    step: float,
    own: Tensor | None = None,
    gains: str = "alone",
    left_out: frozenset[int] = frozenset(),
) -> Proposed:
    """What there is to score, from replies that an engine has found to be in good order. Those `left_out` are valid,
    but not in the average: their gains are what it would gain with them."""
    good = [i for i in drawn.draws.tolist() if i not in replies.failures and i not in left_out]
    return Proposed(Move(aggregator, state, drawn.asked, replies, step, own), good, gains, left_out)


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
        reached = _reached(round, replies, proposed, scores, gains)
        if np.isfinite(reached.scores.utility[0]):
            break
        longest = _longest(round.drawn, replies, gains)
        if longest is None:  # a utility that has had a value here, and has none now
            loss = np.nan if round.state.loss is None else round.state.loss
            reached = reached._replace(scores=Scores(np.array([round.state.utility]), np.array([loss])))
            break
        replies = replace(replies, failures={**replies.failures, longest: DIVERGES})
    return _settled(round, gains, reasons, reached)


def _gains(
    round: Round, replies: Replies, proposed: Proposed, scores: Scores
) -> tuple[dict[int, float | None], dict[int, Code]]:
    """The gain of each provider asked, None where its reply is invalid, and the reasons for those."""
    drawn, asked, singles, whole = round.drawn, round.drawn.asked, scores.utility[:-1], float(scores.utility[-1])
    if proposed.gains == "together":
        more = np.array([-1.0 if i in proposed.left_out else 1.0 for i in asked])
        return shared_gains(drawn, replies, more * whole, more * singles), dict(replies.failures)
    if proposed.gains == "shapley":
        with_it, without = singles[: len(asked)], singles[len(asked) :]
        return shared_gains(drawn, replies, with_it, without), dict(replies.failures)
    return marginal_gains(asked, replies, singles, round.state.utility)


def _reached(
    round: Round, replies: Replies, proposed: Proposed, scores: Scores, gains: Mapping[int, float | None]
) -> _Reached:
    """Line 10, without replies that have no gain and those left out."""
    good = [i for i in round.drawn.draws.tolist() if gains[i] is not None and i not in proposed.left_out]
    if good == proposed.good:
        last = Scores(scores.utility[-1:], None if scores.loss is None else scores.loss[-1:])
        return _Reached(*proposed.reached, last)
    params, combined = replace(proposed.move, replies=replies)(good)
    return _Reached(params, combined, round.evaluator.score(params[None]))


def _longest(drawn: Drawn, replies: Replies, gains: Mapping[int, float | None]) -> int | None:
    """Whose update, of those that a model without a finite utility counts, is the longest; None where it counts none.
    What makes numbers overflow is long, so an ordinary update keeps its place."""
    counted = [(update, i) for update, i in zip(replies.updates, drawn.asked, strict=True) if gains[i] is not None]
    return max((length(update), i) for update, i in counted)[1] if counted else None


def _settled(
    round: Round, by_provider: Mapping[int, float | None], reasons: Mapping[int, Code], reached: _Reached
) -> Outcome:
    """What is paid and learned (lines 7 to 9), and the state after the round."""
    state, drawn, watched = round.state, round.drawn, round.watched
    draws, probabilities = drawn.draws.tolist(), drawn.probabilities.tolist()
    gains = [by_provider[i] for i in draws]
    findings = None if watched is None else watched.findings
    settled = round.rules.settle(state.sampler, drawn, gains, probabilities, findings)
    utility, loss = float(reached.scores.utility[0]), first_loss(reached.scores)
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
        params=reached.params,
        utility=utility,
        loss=loss,
        sampler=settled.state,
        aggregator=reached.aggregator,
        best=state.best if utility <= state.best.utility else Best(state.round + 1, reached.params, utility),
        watch=state.watch if watched is None else watched.kept,
    )
    return after, settlement


def shared_gains(
    drawn: Drawn, replies: Replies, with_it: float | NDArray[np.float64], without: NDArray[np.float64]
) -> dict[int, float | None]:
    """What the model with each provider asked has more utility than that without it, divided by how often it was drawn;
    None for failed replies."""
    draws, more = drawn.draws.tolist(), zip(drawn.asked, (with_it - without).tolist(), strict=True)
    return {i: None if i in replies.failures else gain / draws.count(i) for i, gain in more}


def marginal_gains(
    asked: Sequence[int], replies: Replies, utilities: NDArray[np.float64], base: float
) -> tuple[dict[int, float | None], dict[int, Code]]:
    """U(w + γg_i) − U(w) for each provider asked, None where its reply is invalid, and the reasons for those."""
    reasons = dict(replies.failures)
    with np.errstate(over="ignore", invalid="ignore"):
        rises = utilities - base
    gains: dict[int, float | None] = dict(zip(asked, rises.tolist(), strict=True))
    for row in np.flatnonzero(~np.isfinite(rises)).tolist():
        reasons.setdefault(asked[row], TOO_FAR if np.isfinite(utilities[row]) else NO_UTILITY)
    gains.update(dict.fromkeys(reasons))
    return gains, reasons


def first_loss(scores: Scores) -> float | None:
    """The first loss as the ledger takes it: exp(−∞) = 0 is a utility, but ∞ is no number in JSON."""
    losses: Any = scores.loss
    return None if losses is None or not np.isfinite(losses[0]) else float(losses[0])
