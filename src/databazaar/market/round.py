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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.aggregators import Aggregator, Mean
from databazaar.defence import Findings
from databazaar.engines import Replies
from databazaar.engines.protocol import DIVERGES, NO_UTILITY, TOO_FAR
from databazaar.errors import LedgerError
from databazaar.learning.models import LARGE
from databazaar.learning.utilities import Scores
from databazaar.ledger import Drawn, RuleBook, Settlement, Snapshot
from databazaar.ledger.large import Large
from databazaar.market.fetching import Fetched, goes_ahead, on_host
from databazaar.samplers.protocol import State as SamplerState
from databazaar.samplers.protocol import stored

PIECES, ALIGNED = 64, 1024
"""A large model is averaged in so many pieces, each a multiple of so many coordinates: what is held of the updates
beside them is a 64th, and a processor adds up inside a piece as it does in the whole."""
WATCH = "watch."
"""Stands before the names of a watch's arrays in a snapshot."""


@dataclass(frozen=True)
class Best:
    """The model of the highest utility so far, and after how many rounds it was reached; the earliest of equal ones."""

    round: int
    params: Tensor
    utility: float

    @cached_property
    def model(self) -> Large:
        """The parameters on the host, and their hash: computed once for as long as this is the best."""
        return Large(on_host(self.params))


@dataclass(frozen=True)
class State:
    """What the next round starts from: the model with its scores, and the state of the rules. It is the snapshot.

    `best` is what the consumer gets in the end: it plays no part in any round.
    """

    round: int
    params: Tensor
    utility: float
    loss: float | None
    sampler: SamplerState
    aggregator: Tensor
    best: Best
    watch: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)

    @cached_property
    def model(self) -> Large:
        """The parameters on the host, and their hash, which the ledger and the snapshot share."""
        return self.best.model if self.best.params is self.params else Large(on_host(self.params))

    def take(self, model: Large) -> None:
        """These are the parameters on the host: they need not be fetched."""
        vars(self)["model"] = model
        if self.best.params is self.params:
            vars(self.best)["model"] = model

    @property
    def model_hash(self) -> str:
        return self.model.hash

    def snapshot(self) -> Snapshot:
        scores = [self.utility, np.nan if self.loss is None else self.loss]
        here = self.best.params is self.params
        rest: dict[str, NDArray[Any] | Large] = {
            **stored(self.sampler),
            "aggregator": Large(on_host(self.aggregator)),
            "scores": np.array(scores, dtype=np.float64),
            "best_scores": np.array([self.best.round, self.best.utility], dtype=np.float64),
            "best": self.model.array[:0] if here else self.best.model,
            **{WATCH + name: Large(array) for name, array in self.watch.items()},
        }
        return Snapshot.of(self.round, rest, self.model)

    @classmethod
    def restored(cls, snapshot: Snapshot, like: Tensor, learned: Callable[[], SamplerState]) -> State:
        """The state that a snapshot holds, on the device of `like`. What the sampler has `learned` is told by the
        ledger where it is no vector."""
        kept, final = snapshot.arrays(), snapshot.parameters
        if final is None:
            raise LedgerError("the ledger has no parameters to go on from: they were removed, so put the old file back")
        utility, loss = kept["scores"].tolist()
        params = torch.from_numpy(final).to(like)
        when, top = kept["best_scores"].tolist() if "best_scores" in kept else (snapshot.next_round, utility)
        held = kept.get("best", np.zeros(0))
        best = Best(int(when), torch.from_numpy(held.copy()).to(like) if len(held) else params, top)
        return cls(
            round=snapshot.next_round,
            params=params,
            utility=utility,
            loss=None if np.isnan(loss) else loss,
            sampler=kept["sampler"].copy() if "sampler" in kept else learned(),
            aggregator=torch.from_numpy(kept["aggregator"].copy()).to(like),
            best=best,
            watch={name.removeprefix(WATCH): array.copy() for name, array in kept.items() if name.startswith(WATCH)},
        )


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

    @cached_property
    def model(self) -> Large | None:
        """The last row on its way to the host, if it is a large one on a GPU: it is hashed while models are scored."""
        return Fetched(self.reached[0]) if goes_ahead(self.move.state.params) else None

    @property
    def models(self) -> Tensor:
        """All of them, one a row."""
        return torch.cat([self._before(slice(None)), self.reached[0][None]])

    @property
    def large(self) -> bool:
        return len(self.move.state.params) > LARGE

    def parts(self) -> Iterator[Tensor]:
        """All of them at once; large ones one after the other, and the last only when the others are gone, unless it
        goes ahead to the host."""
        _ = self.model
        if not self.large:
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
    model: Large | None = None


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


@dataclass(frozen=True)
class Move:
    """Line 10, with all that it depends on but the draws that count.

    The consumer's own update, where there is one, counts as one more draw. Alone it moves nothing.
    """

    aggregator: Aggregator
    state: State
    asked: Sequence[int]
    replies: Replies
    step: float
    own: Tensor | None

    def __call__(self, good: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The model after the updates of the `good` draws, in their order, and the aggregator's new state."""
        state, updates = self.state, self.replies.updates
        if not good:
            return state.params, state.aggregator
        rows = torch.tensor([self.asked.index(i) for i in good])
        rows = rows.to(updates.device, non_blocking=True)  # a plain list would wait for the device
        if len(state.params) > LARGE and getattr(self.aggregator, "by_coordinate", False):
            return self.in_pieces(rows), state.aggregator
        chosen = updates[rows]
        if self.own is not None:
            chosen = torch.cat([chosen, self.own[None]])
        combined, moved = self.aggregator.combine(state.aggregator, chosen, self.step)
        return state.params + moved, combined

    def in_pieces(self, rows: Tensor, size: int | None = None) -> Tensor:
        """The same model, some coordinates at a time: no second copy of the updates is made. (Sums over a last piece of
        a few coordinates may be rounded otherwise; where pieces end depends on the model alone.)"""
        params, updates = self.state.params, self.replies.updates
        reached, size = torch.empty_like(params), size or -(-len(params) // (PIECES * ALIGNED)) * ALIGNED
        for start in range(0, len(params), size):
            piece = slice(start, start + size)
            chosen = updates[:, piece][rows]
            if self.own is not None:
                chosen = torch.cat([chosen, self.own[None, piece]])
            reached[piece] = params[piece] + self.aggregator.combine(self.state.aggregator, chosen, self.step)[1]
        return reached

    def alone(self, rows: slice = slice(None)) -> Tensor:
        """The models with one update each."""
        return (self.step * self.replies.updates[rows]).add_(self.state.params)

    def without_each(self, good: Sequence[int], rows: slice = slice(None)) -> Tensor:
        """The models without each of those asked, or with it where it is left out; one a row. Means are taken for all
        of them in one product."""
        rests = [[j for j in good if j != i] if self._counts(i, good) else [*good, i] for i in self.asked][rows]
        if type(self.aggregator) is not Mean:
            return torch.stack([self(rest)[0] for rest in rests])
        own = 0 if self.own is None else 1
        shares = [
            [rest.count(i) for i in self.asked] + [1] * own if rest else [0] * (len(self.asked) + own) for rest in rests
        ]
        return self._moved_by(
            [self.step * share / max(1, len(rest) + own) for share in row]
            for row, rest in zip(shares, rests, strict=True)
        )

    def halfway_with_and_without_each(self, good: Sequence[int], rows: slice = slice(None)) -> Tensor:
        """Half of the move, but of one provider's part all (first those asked, one a row) or nothing (then again). One
        that is left out has no part in the others' rows.

        The consumer's update, one more draw, is a player like the others: there is half of it in every row.
        """
        if all(i in self.replies.failures for i in self.asked):
            return self.state.params.expand(2 * len(self.asked), -1)[rows]
        parts = [[whole if j == i else 0.5 for j in self.asked] for whole in (1.0, 0.0) for i in self.asked]
        counted = [good if self._counts(i, good) else [*good, i] for i in self.asked] * 2
        own = 0 if self.own is None else 1
        return self._moved_by(
            [
                self.step / max(1, len(draws) + own) * times
                for times in [*(draws.count(i) * half for i, half in zip(self.asked, part, strict=True)), *[0.5] * own]
            ]
            for part, draws in zip(parts[rows], counted[rows], strict=True)
        )

    def _counts(self, provider: int, good: Sequence[int]) -> bool:
        """Whether it is in the average, or has failed; else it was left out."""
        return provider in good or provider in self.replies.failures

    def _moved_by(self, weights: Iterable[list[float]]) -> Tensor:
        """The models that so much of each update leads to, one a row; the consumer's own update comes last."""
        updates = self.replies.updates if self.own is None else torch.cat([self.replies.updates, self.own[None]])
        return (torch.tensor(list(weights)).to(updates) @ updates).add_(self.state.params)


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
    model = proposed.model
    good = [i for i in draws if by_provider[i] is not None and i not in proposed.left_out]
    if good != proposed.good:
        params, combined = Move(aggregator, state, asked, replies, step, proposed.move.own)(good)
        known = model = None
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
    return Concluded(params, settled.state, combined, settlement, known, model)


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
    lengths = [float(torch.linalg.vector_norm(update, dtype=torch.float64)) for update in replies.updates]
    longest = max((length, i) for length, i in zip(lengths, drawn.asked, strict=True) if i in counted)[1]
    return replace(replies, failures={**replies.failures, longest: DIVERGES})


def reach(state: State, concluded: Concluded) -> tuple[State, Settlement]:
    """The state after the round, and its settlement. The new model has been scored, and its utility is finite."""
    assert concluded.scores is not None
    utility, loss = float(concluded.scores.utility[0]), first_loss(concluded.scores)
    settlement = replace(concluded.settlement, reached=utility, reached_loss=loss)
    kept = replace(state, params=concluded.params, utility=utility, loss=loss, aggregator=concluded.aggregator)
    if utility > state.best.utility:
        kept = replace(kept, best=Best(state.round + 1, kept.params, utility))
    reached = replace(kept, round=state.round + 1, sampler=concluded.sampler)
    if concluded.model is not None:
        reached.take(concluded.model)
    return reached, settlement


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
