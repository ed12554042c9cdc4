"""The watch of learners that train on rows: it looks at the rows themselves, and at what they have brought.

    copies    A row is a near copy of one in a table where its nearest row there is less than half as far away as the
              second nearest. That happens by chance, in d dimensions about once in 2^d rows; how often is measured with
              the consumer's own rows beside its hold-out. Jittered rows are found too.
              Copies of hold-out rows are a leak (`leak`), those of another provider's make two alike (`alike`).
    gains     What a provider's rows brought, beside what others' brought at the time. With g its gain and m the mean
              gain of others in the last rounds, both in units of the root of the mean square of others' gains,
              s = Σ m g / Σ m² is the least-squares fit of g = s m: rounds in which gains are noise about nothing, as at
              the end, say little about anybody. 1 is as much as others (`data`).

A table of which an access buys a part is compared by that part, so copies of a small part of a large table are not seen
between providers. Inputs by name have no distance, and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.defence import Defence, Findings
from databazaar.defence.detector import DetectorState
from databazaar.engines import Replies
from databazaar.learning.inputs import Examples
from databazaar.market.inspection.coverage import FEWEST_ROWS
from databazaar.market.inspection.inspection import Figures, InspectedReplies, Kept
from databazaar.parties import Consumer
from databazaar.training import Model

Floats = NDArray[np.float64]
NEARER = 0.5
"""A near copy is nearer to its row than this part of the distance to the next."""
LOOKED_AT, AGAINST, FIRST = 256, 4096, 16
"""Rows of an answer that are compared with the hold-out, rows that another provider's are compared with, and how many
of a pair are compared before the others."""
WIDEST = 64
"""Wider rows are compared by so many random combinations of their features: distances stay about as they are."""
BY_CHANCE, AT_LEAST = 2.0, 0.01
"""Rows of an honest provider may be near copies this many times as often as the consumer's own are, and by so much."""
TOO_OFTEN = 0.5
"""Where copies are as common as this by chance, as they are in few dimensions, nothing is said."""
ROUNDS = 8
"""Of so many last rounds the gains of others are looked at."""
LARGEST = 3.0
"""A gain counts as no more than so many times the root of the mean square of others': one leak, or one lucky round,
must not outweigh all others."""


@dataclass(frozen=True, eq=False)
class Space:
    """Where rows are compared: in the spread of the consumer's rows, with a missing number far from any other."""

    center: Tensor
    spread: Tensor
    directions: Tensor | None

    @classmethod
    def of(cls, x: Tensor) -> Space:
        flat = x.flatten(1).double().cpu()
        known = flat.isfinite()
        count = known.sum(0).clamp(min=1)
        center = torch.where(known, flat, 0.0).sum(0) / count
        spread = (torch.where(known, flat - center, 0.0).square().sum(0) / count).sqrt()
        width = 2 * flat.shape[1]
        chosen = np.random.default_rng(0).normal(size=(width, WIDEST)) / np.sqrt(WIDEST) if width > WIDEST else None
        return cls(center, spread, None if chosen is None else torch.from_numpy(chosen))

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(1).double().cpu()
        known = flat.isfinite()
        scaled = torch.where(known & (self.spread > 0), (flat - self.center) / self.spread, 0.0)
        placed = torch.cat([scaled.clamp(-1e3, 1e3), 3.0 * (~known).double()], 1)
        return placed if self.directions is None else placed @ self.directions


def copies(rows: Tensor, table: Tensor) -> NDArray[np.bool_]:
    """Which rows are near copies of one in the table, both in a `Space`."""
    if len(table) < 2 or not len(rows):
        return np.zeros(len(rows), dtype=bool)
    distances = torch.cdist(rows, table, compute_mode="donot_use_mm_for_euclid_dist")
    first, second = distances.topk(2, largest=False).values.T.numpy()
    found: NDArray[np.bool_] = first < NEARER * second
    return found


@dataclass(frozen=True, eq=False)
class RowInspection:
    """The measuring part of a defence of rows, for one market. `chance` is how often a row of the consumer's own is a
    near copy of one in `holdout`; None where nothing can be compared."""

    defence: Defence
    space: Space | None
    holdout: Tensor
    chance: float

    @classmethod
    def of(cls, defence: Defence, consumer: Consumer) -> RowInspection:
        holdout: Examples | None = consumer.holdout
        if holdout is None or not isinstance(holdout[0], Tensor) or len(holdout[1]) < FEWEST_ROWS:
            return cls(defence, None, torch.empty(0, 0), 1.0)
        space = Space.of(holdout[0])
        rows = space(holdout[0])
        own: Examples | None = consumer.train
        if own is None:
            found = copies(rows[::2], rows[1::2])
        else:
            assert isinstance(own[0], Tensor)
            found = copies(space(own[0][:AGAINST]), rows)
        return cls(defence, space, rows, float((found.sum() + 1) / (len(found) + 2)))

    def __call__(
        self, kept: Kept, model: Model, asked: Sequence[int], replies: Replies, step: float, detector: DetectorState
    ) -> InspectedReplies:
        """What there is to know of rows before anybody knows what they bring; the rest is `later`."""
        figures, state = Figures(len(asked)), dict(kept)
        there = [(place, i) for place, i in enumerate(asked) if i in replies.rows]
        if self.space is not None:
            for place, i in there if self.defence.leak is not None and self._limit < TOO_OFTEN else ():
                figures.note("leak", place, self._leak(self.space(_first(replies, i, LOOKED_AT))))
            if self.defence.alike is not None and self.chance < TOO_OFTEN:
                state["compared"] = self._compared(state, replies, detector, figures)
        later = partial(self._judged, state, there, detector, figures)
        return InspectedReplies(replies, figures.findings(), frozenset(), state, later)

    @property
    def _limit(self) -> float:
        """How often rows of an honest provider may be near copies of hold-out rows."""
        return min(1.0, BY_CHANCE * self.chance + AT_LEAST)

    def _leak(self, rows: Tensor) -> float:
        """By how many standard errors more often than they may be."""
        found, limit = copies(rows, self.holdout), self._limit
        expected = len(rows) * limit
        return max(0.0, float(found.sum()) - expected) / float(np.sqrt(expected * (1 - limit) + 1e-12))

    def _compared(
        self, state: Kept, replies: Replies, detector: DetectorState, figures: Figures
    ) -> NDArray[np.generic]:
        """Notes the pairs of providers that are alike; a pair is compared once, when it is first drawn together."""
        n, space = len(detector.arm), self.space
        compared = np.asarray(state.get("compared", np.zeros((n, n), dtype=bool))).copy()
        pairs = [pair for pair in combinations(sorted(replies.rows), 2) if not compared[pair]]
        pairs = [(one, other) for one, other in pairs if detector.arm[one] != detector.arm[other]]
        assert space is not None
        rows = {i: space(_first(replies, i, AGAINST)) for i in {i for pair in pairs for i in pair}}
        for one, other in pairs:
            compared[one, other] = True
            share = max(self._share(rows[one], rows[other]), self._share(rows[other], rows[one]))
            if self.defence.alike is not None and share >= self.defence.alike:
                figures.alike[one, other] = share
        return compared

    def _share(self, rows: Tensor, table: Tensor) -> float:
        """The share of rows that are near copies of the table's, beyond chance."""
        if not copies(rows[:FIRST], table).any():
            return 0.0
        share = float(copies(rows[:LOOKED_AT], table).mean())
        return max(0.0, share - self.chance) / (1 - self.chance)

    def _judged(
        self,
        state: Kept,
        there: Sequence[tuple[int, int]],
        detector: DetectorState,
        figures: Figures,
        gains: Mapping[int, float | None],
    ) -> tuple[Findings, Kept]:
        """With what the rows have brought, once that is known."""
        if self.defence.data is None:
            return figures.findings(), state
        n, owner = len(detector.owner), detector.owner
        sums = np.asarray(state.get("sums", np.zeros((n, 4))), dtype=np.float64).copy()
        recent = np.asarray(state.get("gains", np.zeros((0, 3))), dtype=np.float64)
        round = int(np.asarray(state.get("rounds", np.zeros(1)))[0])
        found = [(i, gains[i]) for _, i in there]
        new = [(round, owner[i], gain) for i, gain in found if gain is not None]
        recent = np.concatenate([recent[recent[:, 0] > round - ROUNDS], np.array(new).reshape(-1, 3)])
        for i, gain in found:
            others = recent[recent[:, 1] != owner[i], 2]
            size = float(np.sqrt((others**2).mean())) if len(others) > 1 else 0.0
            if gain is not None and size > 0:
                usual = max(0.0, float((others / size).clip(-LARGEST, LARGEST).mean()))
                own = min(LARGEST, max(-LARGEST, gain / size))
                sums[i] += np.array([usual * own, usual**2, own**2, 1.0])
        for place, i in there:
            for name, figure in zip(("signal", "error"), _fitted(sums[owner == owner[i]].sum(0)), strict=False):
                figures.note(name, place, figure)
        return figures.findings(), {**state, "sums": sums, "gains": recent, "rounds": np.array([round + 1])}


def _fitted(sums: Floats) -> Iterator[float]:
    """s and its standard error; nothing where the rounds so far do not say much."""
    across, squares, own, count = sums.tolist()
    if count < 3 or squares <= 0:
        return
    signal = across / squares
    left = max(0.0, own - 2 * signal * across + signal**2 * squares) / (count - 1)
    yield signal
    yield float(np.sqrt(left / squares))


def _first(replies: Replies, i: int, rows: int) -> Tensor:
    x = replies.rows[i][0]
    assert isinstance(x, Tensor)
    return x[:rows]
