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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.defence import Defence, Findings
from databazaar.engines import Replies
from databazaar.learning.utilities import Evaluator
from databazaar.market.watch.memory import Memory
from databazaar.market.watch.parts import Parts
from databazaar.market.watch.sketch import Sketch

Floats = NDArray[np.float64]
Kept = Mapping[str, NDArray[np.generic]]
NOT_NEW = "the update says nothing that the model's public changes did not say"
LENGTHS = 64
"""Of so many updates the lengths are remembered."""
CHANGES = 8
"""So many of the model's last changes are public knowledge that is looked at."""
ROOM = 16
"""For each of these changes a vector must have so many dimensions: else honest updates would lie in their span too."""
FAR_BELOW = 0.1
"""How far below what is usual in its round the private share of a void update is: among providers whose data are all
alike, little of any update is private."""
FEWEST = 3
"""With fewer answers in a round there are no others to compare with."""
ORDINARY = 2.0
"""By how many standard errors an ordinary provider must have shown that there is data behind its answers before anybody
is judged by that."""


@dataclass(frozen=True)
class Watched:
    """A round's replies as the market goes on with them: clipped, and without those that are void. `left_out` are
    valid, but not in the average; `kept` is the watch's state."""

    replies: Replies
    findings: Findings
    left_out: frozenset[int]
    kept: Kept


@dataclass(frozen=True, eq=False)
class Watch:
    """The measuring part of a defence, for one market."""

    defence: Defence
    sketch: Sketch
    parts: Parts | None

    @classmethod
    def of(cls, defence: Defence, params: Tensor, evaluator: Evaluator, seed: int) -> Watch:
        needs_parts = defence.screen is not None or defence.leak is not None
        return cls(defence, Sketch.of(params), Parts.of(evaluator, seed) if needs_parts else None)

    def __call__(
        self, kept: Kept, params: Tensor, asked: Sequence[int], replies: Replies, step: float, arms: NDArray[np.int64]
    ) -> Watched:
        """What there is to know of the replies to `params`. `arms` says who shares an arm already."""
        there = [place for place, i in enumerate(asked) if i not in replies.failures]
        figures = _Figures(len(asked))
        state = dict(kept)
        replies = self._lengths(state, replies, there, figures)
        public = self._public(state, params)
        failures: dict[int, str] = {}
        if there:
            private = self._private(state, replies, asked, there, public, failures)
            there = [place for place in there if asked[place] not in failures]
            replies = replace(replies, failures={**replies.failures, **failures})
            memory, at = self._memory(state).places([asked[place] for place in there])
            memory = self._remember(memory, at, private, there, figures, asked, arms)
            memory = self._score(memory, at, params, replies.updates, there, step, figures)
            state.update(memory.arrays())
        return Watched(replies, figures.findings(), self._left_out(asked, figures), state)

    def _memory(self, state: Kept) -> Memory:
        size = len(np.asarray(state["last"]))
        return Memory.of(state, size, 0 if self.parts is None else self.parts.rows)

    def _lengths(
        self, state: dict[str, NDArray[np.generic]], replies: Replies, there: Sequence[int], figures: _Figures
    ) -> Replies:
        """Notes the lengths, and clips what is longer than so many usual ones."""
        lengths = torch.linalg.vector_norm(replies.updates.double(), dim=1).cpu().numpy()
        before = np.asarray(state.get("lengths", np.zeros(0)), dtype=np.float64)
        usual = float(np.median(before if len(before) else lengths[there])) if there or len(before) else 0.0
        scales = np.ones(len(lengths))
        for place in there:
            figures.length[place] = float(lengths[place] / usual) if usual > 0 else 1.0
            if self.defence.clip is not None and lengths[place] > self.defence.clip * usual > 0:
                scales[place] = self.defence.clip * usual / lengths[place]
        state["lengths"] = np.concatenate([before, (lengths * scales)[there]])[-LENGTHS:]
        if (scales == 1.0).all():
            return replies
        return replace(replies, updates=replies.updates * torch.from_numpy(scales).to(replies.updates)[:, None])

    def _public(self, state: dict[str, NDArray[np.generic]], params: Tensor) -> Floats:
        """An orthonormal basis of the model's last changes, as sketches: [dimension, changes]."""
        now = self.sketch(params[None]).numpy()[0]
        most = min(CHANGES, len(now) // ROOM)
        changes = np.asarray(state.get("changes", np.zeros((0, len(now)))), dtype=np.float64)
        if "last" in state:
            change = now - np.asarray(state["last"], dtype=np.float64)
            length = float(np.linalg.norm(change))
            if length > 0:
                changes = np.concatenate([changes, (change / length)[None]])[-most:] if most else changes
        state["last"], state["changes"] = now, changes
        basis, sizes, _ = np.linalg.svd(changes.T, full_matrices=False) if len(changes) else (changes.T, np.zeros(0), 0)
        found: Floats = basis[:, sizes > 1e-6]
        return found

    def _private(
        self,
        state: Mapping[str, NDArray[np.generic]],
        replies: Replies,
        asked: Sequence[int],
        there: Sequence[int],
        public: Floats,
        failures: dict[int, str],
    ) -> Floats:
        """The private parts of the updates, of length one before, for all places; and who has none."""
        sketches = self.sketch(replies.updates).numpy()
        lengths = np.linalg.norm(sketches, axis=1)
        units = np.divide(sketches, lengths[:, None], out=np.zeros_like(sketches), where=lengths[:, None] > 0)
        beyond = units - (units @ public) @ public.T
        if self.defence.new is not None:
            shares = (beyond[there] ** 2).sum(1)
            usual = float(np.median(np.asarray(state["lengths"], dtype=np.float64)))
            for share, place in zip(shares, there, strict=True):
                known = share < self.defence.new and share < FAR_BELOW * float(np.median(shares))
                if known or lengths[place] < self.defence.new * usual:
                    failures[asked[place]] = NOT_NEW
        good = [place for place in there if asked[place] not in failures]
        for place in good:
            others = beyond[[other for other in good if other != place]].sum(0)
            size = float(others @ others)
            if size > 0:
                beyond[place] = beyond[place] - (beyond[place] @ others / size) * others
        found: Floats = beyond
        return found

    def _remember(
        self,
        memory: Memory,
        at: Sequence[int],
        private: Floats,
        there: Sequence[int],
        figures: _Figures,
        asked: Sequence[int],
        arms: NDArray[np.int64],
    ) -> Memory:
        """Adds the private parts to what is remembered, and notes what persists and who is alike."""
        if self.defence.data is None and self.defence.alike is None:
            return memory
        if len(there) >= FEWEST:
            memory = memory.with_private(at, private[there])
        if self.defence.data is not None:
            for place, signal in zip(there, memory.signals(at, ORDINARY), strict=True):
                if signal is not None:
                    figures.signal[place], figures.error[place] = signal
        if self.defence.alike is not None:
            for place, own in zip(there, at, strict=True):
                for other, cosine in memory.alike(own):
                    pair = sorted((asked[place], int(memory.who[other])))
                    if cosine >= self.defence.alike and arms[pair[0]] != arms[pair[1]]:
                        figures.alike[pair[0], pair[1]] = cosine
        return memory

    def _score(
        self,
        memory: Memory,
        at: Sequence[int],
        params: Tensor,
        updates: Tensor,
        there: Sequence[int],
        step: float,
        figures: _Figures,
    ) -> Memory:
        """Notes harm and leaks, from the gains on the rows of both parts."""
        if self.parts is None or not there:
            return memory
        gains = self.parts.gains(params, (step / len(there)) * updates[list(there)])
        for place, harm in zip(there, self.parts.harm(gains).tolist(), strict=True):
            figures.harm[place] = harm
        if self.defence.leak is not None and len(there) >= FEWEST:
            beside = np.stack([np.median(np.delete(gains, row, axis=0), axis=0) for row in range(len(gains))])
            memory = memory.with_gains(at, gains - beside)
            for place, own in zip(there, at, strict=True):
                figures.leak[place] = self.parts.difference(memory.gains[own].astype(np.float64))
        return memory

    def _left_out(self, asked: Sequence[int], figures: _Figures) -> frozenset[int]:
        limit, found = self.defence.screen, zip(asked, figures.findings().harm, strict=True)
        return frozenset(i for i, harm in found if limit is not None and harm is not None and harm > limit)


class _Figures:
    """Findings in the making. Figures are kept to four digits, so that what is recorded is what is judged by."""

    def __init__(self, asked: int) -> None:
        self.length: list[float | None] = [None] * asked
        self.harm: list[float | None] = [None] * asked
        self.leak: list[float | None] = [None] * asked
        self.signal: list[float | None] = [None] * asked
        self.error: list[float | None] = [None] * asked
        self.alike: dict[tuple[int, int], float] = {}

    def findings(self) -> Findings:
        return Findings(
            _short(self.length),
            _short(self.harm),
            _short(self.leak),
            _short(self.signal),
            _short(self.error),
            [(one, other, _four_digits(cosine)) for (one, other), cosine in self.alike.items()],
        )


def _short(figures: Sequence[float | None]) -> list[float | None]:
    return [None if figure is None else _four_digits(figure) for figure in figures]


def _four_digits(figure: float) -> float:
    return float(f"{figure:.4g}")
