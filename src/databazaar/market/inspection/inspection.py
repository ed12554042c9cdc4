"""The watch: looks at a round's updates before they are scored, and measures what verdicts are made of.

One pass over the updates of a round, in this order, each step by its rule (databazaar/defence/settings.py):

    lengths   in units of the usual one, the median of recent ones; longer updates are clipped (`clip`)
    sketches  of the updates and of the models so far; an update that lies in the span of the model's public changes, or
              is next to nothing, is void (`new`)
    memory    of what is private in each one's answers, beside the public span and the others' mean (`data`, `alike`)
    parts     gains on the rows of the two parts of the hold-out, at the share that an update has in the average: what
              does harm is left out of it (`screen`, `leak`)

Its state is part of the run's, so a run that is resumed measures the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.defence import Defence, Findings
from databazaar.defence.detector import DetectorState
from databazaar.defence.findings import LISTS, NOT_NEW
from databazaar.defence.judge import FEWEST
from databazaar.engines import Replies
from databazaar.engines.protocol import length
from databazaar.learning.utilities import Evaluator
from databazaar.market.inspection.coverage import CHANGES, FEW_DIMENSIONS, ROOM
from databazaar.market.inspection.holdout_parts import Parts
from databazaar.market.inspection.memory import SAME, Memory, Sketch, of_length_one
from databazaar.training import Model
from databazaar.training.parameters import vector_of

Floats = NDArray[np.float64]
Places = NDArray[np.bool_]
Kept = Mapping[str, NDArray[np.generic]]
LENGTHS = 64
"""Of so many updates the lengths are remembered."""
FAR_BELOW = 0.1
"""How far below what is usual in its round the private share of a void update is: among providers whose data are all
alike, little of any update is private."""
AGAIN = 0.1
"""How much nearer to an earlier answer an update must be than to the public span: honest ones change little too."""
ORDINARY = 2.0
"""By how many standard errors an ordinary owner must have shown that there is data behind its answers before anybody
is judged by that."""


@dataclass(frozen=True)
class InspectedReplies:
    """A round's replies as the market goes on with them: clipped, and without those that are void. `left_out` are
    valid, but not in the average; `kept` is the watch's state. What can be said only once gains are known is `later`.
    """

    replies: Replies
    findings: Findings
    left_out: frozenset[int]
    kept: Kept
    later: Callable[[Mapping[int, float | None]], tuple[Findings, Kept]] | None = None

    def concluded(self, gains: Mapping[int, float | None]) -> tuple[Findings, Kept]:
        """All findings of the round, whose gains these are, and the watch's state after it."""
        return (self.findings, self.kept) if self.later is None else self.later(gains)


class Watch(Protocol):
    """The measuring part of a defence, for one market."""

    def __call__(
        self, kept: Kept, model: Model, asked: Sequence[int], replies: Replies, step: float, detector: DetectorState
    ) -> InspectedReplies:
        """What there is to know of the replies to `model`. `detector` says how everybody stands."""
        ...


@dataclass(frozen=True, eq=False)
class Inspection:
    """The measuring part of a defence of updates."""

    defence: Defence
    sketch: Sketch
    parts: Parts | None

    @classmethod
    def of(cls, defence: Defence, params: Tensor, evaluator: Evaluator, seed: int) -> Inspection:
        return cls(defence, Sketch.of(params), Parts.of(evaluator, seed) if defence.parts_holdout else None)

    def __call__(
        self, kept: Kept, model: Model, asked: Sequence[int], replies: Replies, step: float, detector: DetectorState
    ) -> InspectedReplies:
        params = vector_of(model)
        there = [place for place, i in enumerate(asked) if i not in replies.failures]
        figures, state = Figures(len(asked)), dict(kept)
        replies = self._lengths(state, replies, there, figures)
        public = self._public(state, params)
        if there:
            rows = 0 if self.parts is None else self.parts.rows
            memory = Memory.of(state, len(np.asarray(state["last"])), rows)
            memory, at = memory.places([asked[place] for place in there])
            units, lengths = of_length_one(self.sketch(replies.updates[there]).numpy())
            private = units - (units @ public) @ public.T
            earlier = memory.earlier[at] - (memory.earlier[at] @ public) @ public.T
            known, same = self._known(earlier, private)
            memory = memory.with_answers(at, units, lengths, np.asarray(state["last"], dtype=np.float64), same)
            new = ~known & (memory.tallies[at, SAME] == 0) & ~self._nothing(state, lengths)
            failures = {asked[place]: NOT_NEW for place, is_new in zip(there, new, strict=True) if not is_new}
            replies = replace(replies, failures={**replies.failures, **failures})
            answers = _Answers(list(compress(there, new)), list(compress(at, new)), detector.owner[memory.who])
            memory = self._remember(memory, answers, private[new], detector.arm, figures)
            memory = self._score(memory, answers, params, replies.updates, step, figures)
            state.update(memory.arrays())
        limit, harms = self.defence.screen, zip(asked, figures.lists["harm"], strict=True)
        left_out = frozenset(i for i, harm in harms if limit is not None and harm is not None and harm > limit)
        return InspectedReplies(replies, figures.findings(), left_out, state)

    def _lengths(
        self, state: dict[str, NDArray[np.generic]], replies: Replies, there: Sequence[int], figures: Figures
    ) -> Replies:
        """Notes the lengths, and clips what is longer than so many usual ones."""
        updates = replies.updates
        lengths = np.array([length(update) for update in updates])
        before = np.asarray(state.get("lengths", np.zeros(0)), dtype=np.float64)
        usual = _usual(before if len(before) else lengths[there])
        scales = np.ones(len(lengths))
        for place in there:
            figures.note("length", place, float(lengths[place] / usual) if usual > 0 else 1.0)
            if self.defence.clip is not None and lengths[place] > self.defence.clip * usual > 0:
                scales[place] = self.defence.clip * usual / lengths[place]
        state["lengths"] = np.concatenate([before, (lengths * scales)[there]])[-LENGTHS:]
        if (scales == 1.0).all():
            return replies
        return replace(replies, updates=updates * torch.from_numpy(scales).to(updates)[:, None])

    def _public(self, state: dict[str, NDArray[np.generic]], params: Tensor) -> Floats:
        """An orthonormal basis of the model's public changes, as sketches: [dimension, changes]."""
        now = self.sketch(params[None]).numpy()[0]
        room, round = len(now) // ROOM, int(np.asarray(state.get("rounds", np.zeros(1)))[0])
        recent, first = (np.asarray(state.get(name, np.zeros((0, len(now))))) for name in ("recent", "first"))
        models: Floats = np.concatenate([recent, first]).astype(np.float64)
        state["recent"] = np.concatenate([recent, now[None]])[-CHANGES:]
        if round & (round - 1) == 0 and len(first) < room - CHANGES:
            state["first"] = np.concatenate([first, now[None]])
        state["last"], state["rounds"] = now, np.array([round + 1])
        changes, lengths = of_length_one(now - models)
        changes = changes[lengths > 0][:room]
        if not len(changes):
            return np.zeros((len(now), 0))
        basis, sizes, _ = np.linalg.svd(changes.T, full_matrices=False)
        found: Floats = basis[:, sizes > 1e-6]
        return found

    def _known(self, earlier: Floats, private: Floats) -> tuple[Places, Places]:
        """Which updates lie in the public span, and which in that of it and an earlier answer: but for a part that is
        small, and far smaller than what is usual in the round."""
        none = np.zeros(len(private), dtype=bool)
        if self.defence.new is None or len(private) < FEWEST or private.shape[1] < FEW_DIMENSIONS:
            return none, none
        public = _far_below(self.defence.new, (private**2).sum(1))
        same = _far_below(AGAIN * self.defence.new, (_without(private, earlier) ** 2).sum(1))
        return public, same & ((earlier**2).sum(1) > 0)

    def _nothing(self, state: Kept, lengths: Floats) -> Places:
        """Which updates are next to nothing beside the usual length. That is the lower quartile here: very long
        updates from half of those asked must not make all others void."""
        usual = np.quantile(np.asarray(state["lengths"], dtype=np.float64), 0.25, method="lower")
        found: Places = lengths < (self.defence.new or 0.0) * float(usual)
        return found

    def _remember(
        self, memory: Memory, answers: _Answers, private: Floats, arms: NDArray[np.int64], figures: Figures
    ) -> Memory:
        """Adds the private parts to what is remembered, and notes what persists and who is alike."""
        if self.defence.data is None and self.defence.alike is None:
            return memory
        if len(answers.at) >= FEWEST:
            beside_others = _without(private, private.sum(0) - private)
            memory = memory.with_private(answers.at, answers.owners, beside_others)
        if self.defence.data is not None:
            for place, signal in zip(answers.there, memory.signals(answers.at, answers.owners, ORDINARY), strict=True):
                if signal is not None:
                    figures.note("signal", place, signal[0])
                    figures.note("error", place, signal[1])
        if self.defence.alike is not None and private.shape[1] >= FEW_DIMENSIONS:
            for own in answers.at:
                for other, cosine in memory.alike(own):
                    one, another = sorted((int(memory.who[own]), int(memory.who[other])))
                    if cosine >= self.defence.alike and arms[one] != arms[another]:
                        figures.alike[one, another] = cosine
        return memory

    def _score(
        self, memory: Memory, answers: _Answers, params: Tensor, updates: Tensor, step: float, figures: Figures
    ) -> Memory:
        """Notes harm and leaks, from the gains on the rows of both parts."""
        there, at, owners = answers
        if self.parts is None or not there:
            return memory
        share = step / len(there)
        gains = self.parts.gains(params, share * updates[there])
        for place, harm in zip(there, self.parts.harm(gains).tolist(), strict=True):
            figures.note("harm", place, harm)
        if self.defence.leak is not None and len(there) >= FEWEST:
            others = median_of_others(gains)
            memory = memory.with_gains(at, gains - others, others)
            for place, own in zip(there, at, strict=True):
                figures.note("leak", place, self.parts.difference(memory.unexplained(own, owners)))
        return memory


def median_of_others(values: Floats) -> Floats:
    """For every row [m, …] the median of the other rows, entry by entry; m is 2 or more.

    >>> median_of_others(np.array([[1.0], [5.0], [2.0], [9.0]])).ravel().tolist()
    [5.0, 2.0, 5.0, 2.0]
    """
    order = np.sort(values, axis=0)
    rank = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    lower = np.take_along_axis(order, np.where(rank <= low, low + 1, low), axis=0)
    upper = np.take_along_axis(order, np.where(rank <= high, high + 1, high), axis=0)
    found: Floats = (lower + upper) / 2
    return found


def _usual(lengths: Floats) -> float:
    """The median; the least where there are fewer than `FEWEST`, of which one may say what it likes."""
    if not len(lengths):
        return 0.0
    return float(lengths.min() if len(lengths) < FEWEST else np.median(lengths))


def _far_below(least: float, shares: Floats) -> Places:
    found: Places = (shares < least) & (shares < FAR_BELOW * float(np.median(shares)))
    return found


def _without(rows: Floats, directions: Floats) -> Floats:
    """Each row [m, size] without its part along its direction."""
    squares = (directions**2).sum(1)
    along = np.divide((directions * rows).sum(1), squares, out=np.zeros(len(squares)), where=squares > 0)
    found: Floats = rows - along[:, None] * directions
    return found


class _Answers(NamedTuple):
    """Valid answers: their places among those asked, and in the memory; and the owners of all rows of the memory."""

    there: list[int]
    at: list[int]
    owners: NDArray[np.int64]


class Figures:
    """Findings in the making. Figures are kept to four digits, so that what is recorded is what is judged by."""

    def __init__(self, asked: int) -> None:
        self.lists: dict[str, list[float | None]] = {name: [None] * asked for name in LISTS}
        self.alike: dict[tuple[int, int], float] = {}

    def note(self, name: str, place: int, figure: float) -> None:
        self.lists[name][place] = float(f"{figure:.4g}")

    def findings(self) -> Findings:
        alike = [(one, other, float(f"{cosine:.4g}")) for (one, other), cosine in self.alike.items()]
        return Findings(**self.lists, alike=alike)
