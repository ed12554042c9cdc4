"""One round of the market as pure functions over a state: Algorithm 1 of the paper, line by line.

    drawn     = rules.draw(state.sampler, book)                          line 5 (ledger/rulebook.py)
    ask       = Ask(state.params, drawn.asked, …)                        line 6, answered by an engine
    proposed  = propose(aggregator, state, drawn, replies, step)         line 10, if all of them are valid
    concluded = conclude(rules, …, proposed, scores of proposed.models)  lines 7 to 10
    state     = reach(state, concluded)                                  with the new model, which has been scored

Departures from the paper. Replies that fail, which the paper does not have: a failed reply counts as a gain of zero
(where gains are measured together: as no better than the worst of its round), is left out of the average (which is
then over the valid draws), and is not paid. Where the round's model has no finite utility although every update by
itself leads to one, the longest update is void, and then the next, until it has one: two parties whose updates are in
order one by one can neither end a run nor spoil it. A consumer with training rows of its own, which the paper does
not have either: its own update takes part in the average of every round, as one more draw that costs nothing; what it
buys is therefore never far from what it knows itself.

Gains. The paper's is that of an update alone, U(w + γg_i) − U(w). It flatters whoever moves the model least: once the
model is good, a single provider's update does harm alone although the average of several helps, and the best is then
who hardly works. A sampler may ask for gains `together` instead: what the round's model loses without the provider,
U(w⁺) − U(w⁺ without i). Or for `shapley` gains: its share of the round's rise, in the game whose players are the draws
and whose coalitions S reach w(S) = w + γ/K · Σ_{j in S} g_j. Halfway, at m = w + γ/2K · Σ g_j, the difference

    U(m + γ/2K · g_i) − U(m − γ/2K · g_i)

is the Shapley value of draw i, exactly where U is quadratic along the moves: then every pair's interaction is halved
among the two, and the gains of a round, with what is the consumer's own share, add up to its rise. Who sends back
nothing gains nothing (a null player). With an aggregator that is not a mean it is the same difference: what the update
would have brought to a mean. A robust aggregator makes next to nothing of a bad update, and next to nothing, where most
do a little harm, would be paid well.
Only where a model of such rounds has no finite utility are updates looked at alone, to find out whose it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Aggregator
from databazaar.defence import Findings
from databazaar.engines import Replies
from databazaar.engines.protocol import DIVERGES, NO_UTILITY, TOO_FAR
from databazaar.learning.models import LARGE
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn, RuleBook, Settlement
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
class Concluded:
    """A round whose gains are known: what is paid, what the rules learned, and the model that it comes to.

    `scores` are that model's; None where it is not the one that was proposed, and has yet to be scored.
    """

    params: Tensor
    sampler: NDArray[np.float64]
    aggregator: Tensor
    settlement: Settlement
    scores: Scores | None


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


def conclude(
    rules: RuleBook,
    aggregator: Aggregator,
    state: State,
    drawn: Drawn,
    replies: Replies,
    proposed: Proposed,
    scores: Scores,
    step: float,
    findings: Findings | None = None,
) -> Concluded:
    """Lines 7 to 9: pay, and learn from the gains; and the model of line 10, without replies that have no utility.

    `findings` are what a defence has measured in the replies.
    """
    asked, draws = drawn.asked, drawn.draws.tolist()
    singles, whole = _split(scores)
    reasons = dict(replies.failures)
    if proposed.gains == "together":
        more = np.array([-1.0 if i in proposed.left_out else 1.0 for i in asked])
        by_provider = shared_gains(drawn, replies, more * float(whole.utility[0]), more * singles.utility)
    elif proposed.gains == "shapley":
        with_it, without = singles.utility[: len(asked)], singles.utility[len(asked) :]
        by_provider = shared_gains(drawn, replies, with_it, without)
    else:
        by_provider, reasons = marginal_gains(asked, replies, singles, state.utility)
    gains = [by_provider[i] for i in draws]
    params, combined = proposed.reached
    known: Scores | None = whole
    good = [i for i in draws if by_provider[i] is not None and i not in proposed.left_out]
    if good != proposed.good:
        params, combined = replace(proposed.move, replies=replies)(good)
        known = None
    probabilities = drawn.probabilities.tolist()
    settled = rules.settle(state.sampler, drawn, gains, probabilities, findings)  # lines 7 to 9
    settlement = Settlement(
        gains=gains,
        failures=[reasons.get(i) for i in draws],
        probabilities=probabilities,
        paid=settled.paid,
        utility=state.utility,
        loss=state.loss,
        reached=None,
        reached_loss=None,
        held=settled.held,
        released=settled.released,
        returned=settled.returned,
        findings=findings,
    )
    return Concluded(params, settled.state, combined, settlement, known)


def _split(scores: Scores) -> tuple[Scores, Scores]:
    """The scores of all but the last model, and of the last one."""
    utility, loss = scores.utility, scores.loss
    if loss is None:
        return Scores(utility[:-1], None), Scores(utility[-1:], None)
    return Scores(utility[:-1], loss[:-1]), Scores(utility[-1:], loss[-1:])


def without_longest(drawn: Drawn, replies: Replies, concluded: Concluded) -> Replies | None:
    """The replies of a round whose model has no finite utility, without the longest update that it counts; None where
    it counts none. What makes numbers overflow is long, so whoever sends ordinary updates keeps its place."""
    draws = zip(drawn.draws.tolist(), concluded.settlement.gains, strict=True)
    counted = {i for i, gain in draws if gain is not None}
    if not counted:
        return None
    lengths = [length(update) for update in replies.updates]
    longest = max((long, i) for long, i in zip(lengths, drawn.asked, strict=True) if i in counted)[1]
    return replace(replies, failures={**replies.failures, longest: DIVERGES})


def reach(state: State, concluded: Concluded) -> tuple[State, Settlement]:
    """The state after the round, and its settlement. The new model has been scored, and its utility is finite."""
    assert concluded.scores is not None
    utility, loss = float(concluded.scores.utility[0]), first_loss(concluded.scores)
    settlement = replace(concluded.settlement, reached=utility, reached_loss=loss)
    kept = replace(state, params=concluded.params, utility=utility, loss=loss, aggregator=concluded.aggregator)
    if utility > state.best.utility:
        kept = replace(kept, best=Best(state.round + 1, kept.params, utility))
    return replace(kept, round=state.round + 1, sampler=concluded.sampler), settlement


def shared_gains(
    drawn: Drawn, replies: Replies, with_it: float | NDArray[np.float64], without: NDArray[np.float64]
) -> dict[int, float | None]:
    """What the model with each provider asked has more utility than that without it, divided by how often it was drawn;
    None for failed replies."""
    draws, more = drawn.draws.tolist(), zip(drawn.asked, (with_it - without).tolist(), strict=True)
    return {i: None if i in replies.failures else gain / draws.count(i) for i, gain in more}


def marginal_gains(
    asked: Sequence[int], replies: Replies, scores: Scores, base: float
) -> tuple[dict[int, float | None], dict[int, str]]:
    """U(w + γg_i) − U(w) for each provider asked, None where its reply is invalid, and the reasons for those."""
    reasons = dict(replies.failures)
    with np.errstate(over="ignore", invalid="ignore"):
        rises = scores.utility - base
    gains: dict[int, float | None] = dict(zip(asked, rises.tolist(), strict=True))
    for row in np.flatnonzero(~np.isfinite(rises)).tolist():
        reasons.setdefault(asked[row], TOO_FAR if np.isfinite(scores.utility[row]) else NO_UTILITY)
    gains.update(dict.fromkeys(reasons))
    return gains, reasons


def first_loss(scores: Scores) -> float | None:
    """The first loss as the ledger takes it: exp(−∞) = 0 is a utility, but ∞ is no number in JSON."""
    losses: Any = scores.loss
    return None if losses is None or not np.isfinite(losses[0]) else float(losses[0])
