"""Owners as arms: the sampler chooses among owners, and then among the providers of one.

The problem is that of Algorithm 1 with the arms of a bandit exchanged: who registers its data five times has one arm,
not five. The same sampler is played twice, over arms and over providers, and with q over arms and p over providers

    chance of provider i = q(arm of i) · p_i / Σ_{j in the arm of i} p_j

What a draw brings is told to both. Where everybody is an arm of its own this is the sampler itself, to the last bit.
Those who are found to be alike (defence/judge.py) share an arm from then on; flagged ones are not drawn any more, and
an arm whose accesses have cost the largest share that one owner may earn rests, as long as anybody else can be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.defence.detector import COLUMNS, DetectorState
from databazaar.defence.settings import Defence
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Draws, Explores, Merges, Sampler, Vector, Wants

OWNERS = 14
"""A cap is meant for so many owners or more. Among fewer it is as many times larger: a quarter would keep the consumer
from the best of nine."""


def share_of(cap: float, arms: int) -> float:
    """The largest share of the budget that one of so many arms may cost.

    >>> share_of(0.25, 20), share_of(0.25, 7), share_of(0.25, 3)
    (0.25, 0.5, 1.0)
    """
    return min(1.0, cap * max(1.0, OWNERS / arms))


@dataclass(frozen=True)
class OwnerGroups:
    """A sampler over arms, by a sampler over providers. Its state is both samplers' states, the detector state, and
    the most that an arm may cost."""

    sampler: Sampler
    defence: Defence

    @property
    def kind(self) -> str:
        return self.sampler.kind

    @property
    def wants(self) -> Wants:
        """Rounds are short also where it draws nobody twice: there may be fewer arms than draws."""
        own = self.sampler.wants
        return replace(own, short_rounds=own.short_rounds or own.no_repeats)

    @property
    def alpha(self) -> float:
        return float(self.sampler.alpha) if isinstance(self.sampler, Explores) else 0.01

    def exploration(self, round_budget: RoundBudget) -> Vector:
        own = self.sampler
        return own.exploration(round_budget) if isinstance(own, Explores) else np.zeros(len(round_budget.quotes))

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        own = np.asarray(self.sampler.init(roster, budget, per_round))  # verdicts are about everybody: a vector
        detector = DetectorState.new(roster, self.defence.owners)
        cap = 0.0
        if self.defence.cap is not None:
            cap = share_of(self.defence.cap, len(detector.arms)) * budget
        return _Parts(own, own, detector, cap).vector()

    def detector(self, state: Vector, providers: int) -> DetectorState:
        return self._parts(state, providers).detector

    def with_detector(self, state: Vector, before: DetectorState, detector: DetectorState) -> Vector:
        """The state after verdicts. A sampler with a `merge` adds up what it knows of arms that become one."""
        parts, places = self._parts(state, len(detector.arm)), np.arange(len(detector.arm))
        outer = parts.outer
        if isinstance(self.sampler, Merges):
            for left in np.flatnonzero((before.arm == places) & (detector.arm != places)).tolist():
                outer = self.sampler.merge(outer, int(detector.arm[left]), left)
        return parts._replace(outer=outer, detector=detector).vector()

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        seen = self._see(state, round_budget)
        outer = self.sampler.probabilities(seen.parts.outer, seen.round_budget)
        if seen.within is None:
            return outer
        chances: Vector = outer[seen.parts.detector.arm] * seen.within
        chances /= chances.sum()
        return chances

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        seen = self._see(state, round_budget)
        arms = self.sampler.draw(seen.parts.outer, rng, size, seen.round_budget)
        if seen.within is None:
            return arms
        chosen = {}
        for arm in dict.fromkeys(arms.tolist()):
            members = np.flatnonzero((seen.parts.detector.arm == arm) & seen.open)
            ladder = seen.within[members].cumsum()
            at = int(ladder.searchsorted(rng.random() * ladder[-1], side="right"))
            chosen[arm] = int(members[min(at, len(members) - 1)])
        return np.array([chosen[arm] for arm in arms.tolist()], dtype=np.int64)

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        seen = self._see(state, round_budget)
        parts = seen.parts
        outer = self.sampler.update(parts.outer, parts.detector.arm[draws], gains, seen.round_budget)
        return parts._replace(outer=outer, inner=self.sampler.update(parts.inner, draws, gains, round_budget)).vector()

    def _parts(self, state: Vector, providers: int) -> _Parts:
        size = (len(state) - 1 - COLUMNS * providers) // 2
        return _Parts(state[:size], state[size : 2 * size], DetectorState.of(state[2 * size : -1]), float(state[-1]))

    def _see(self, state: Vector, round_budget: RoundBudget) -> _Seen:
        parts = self._parts(state, len(round_budget.quotes))
        detector, open_ = parts.detector, _open(parts, round_budget)
        if detector.plain and bool(open_.all()):
            return _Seen(parts, open_, None, round_budget)
        p = self.sampler.probabilities(parts.inner, round_budget)
        within = _within(detector, np.where(open_ & round_budget.available, p, 0.0), open_ & round_budget.available)
        return _Seen(parts, open_, within, _arm_budget(detector, open_, within, round_budget))


class _Parts(NamedTuple):
    """The state: that of the sampler over arms, of the one over providers, the detector state, and the most that
    an arm may cost, 0 where there is no cap."""

    outer: Vector
    inner: Vector
    detector: DetectorState
    cap: float

    def vector(self) -> Vector:
        return np.concatenate([self.outer, self.inner, self.detector.vector(), [self.cap]])


class _Seen(NamedTuple):
    """Who may be drawn in a round, each one's share of its arm, and the budget as arms see it. There are no shares
    where every provider is an arm of its own and may be drawn: the budget is then unchanged."""

    parts: _Parts
    open: NDArray[np.bool_]
    within: Vector | None
    round_budget: RoundBudget


def _open(parts: _Parts, round_budget: RoundBudget) -> NDArray[np.bool_]:
    """Who may be drawn: neither flagged nor beyond the cap, unless nobody is left."""
    detector, open_ = parts.detector, ~parts.detector.flagged
    if parts.cap:
        below = open_ & (detector.asked[detector.arm] + round_budget.quotes <= parts.cap)
        open_ = below if (below & round_budget.available).any() else open_
    return open_ if (open_ & round_budget.available).any() else np.ones_like(open_)


def _within(detector: DetectorState, p: Vector, can: NDArray[np.bool_]) -> Vector:
    """p_i / Σ p over the arm of i, of those who can be drawn; evenly where p is nothing for all of them."""
    n = len(p)
    p = np.where(can & (np.bincount(detector.arm, p, n)[detector.arm] <= 0), 1.0, p)
    sums = np.bincount(detector.arm, p, n)[detector.arm]
    share: Vector = p / np.where(sums > 0, sums, 1.0)
    return share


def _arm_budget(
    detector: DetectorState, open_: NDArray[np.bool_], within: Vector, round_budget: RoundBudget
) -> RoundBudget:
    """The round's budget as arms see it: an arm costs what its providers cost in the mean, and is open while one is.
    Places that stand for no arm are used up."""
    n = len(round_budget.quotes)
    costs = np.bincount(detector.arm, within * round_budget.quotes, n)
    quotes = np.where(costs > 0, np.ceil(costs - 1e-9), round_budget.quotes).astype(np.int64)
    left = np.zeros(n, dtype=np.int64)
    left[np.bincount(detector.arm, (open_ & round_budget.available).astype(np.float64), n) > 0] = 2**62
    return replace(
        round_budget, quotes=np.minimum(quotes, round_budget.money), accesses_left=left, most_per_access=None
    )
