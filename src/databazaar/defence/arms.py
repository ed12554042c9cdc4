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

from databazaar.defence.court import COLUMNS, Court
from databazaar.defence.settings import Defence
from databazaar.roster import Purse, Roster
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
class Arms:
    """A sampler over arms, by a sampler over providers. Its state is both samplers' states, the court's, and the most
    that an arm may cost."""

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

    def exploration(self, purse: Purse) -> Vector:
        own = self.sampler
        return own.exploration(purse) if isinstance(own, Explores) else np.zeros(len(purse.quotes))

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        own = np.asarray(self.sampler.init(roster, budget, per_round))  # verdicts are about everybody: a vector
        court = Court.new(roster, self.defence.owners)
        cap = 0.0
        if self.defence.cap is not None:
            cap = share_of(self.defence.cap, len(court.arms)) * budget
        return _Parts(own, own, court, cap).vector()

    def court(self, state: Vector, providers: int) -> Court:
        return self._parts(state, providers).court

    def with_court(self, state: Vector, before: Court, court: Court) -> Vector:
        """The state after verdicts. A sampler with a `merge` adds up what it knows of arms that become one."""
        parts, places = self._parts(state, len(court.arm)), np.arange(len(court.arm))
        outer = parts.outer
        if isinstance(self.sampler, Merges):
            for left in np.flatnonzero((before.arm == places) & (court.arm != places)).tolist():
                outer = self.sampler.merge(outer, int(court.arm[left]), left)
        return parts._replace(outer=outer, court=court).vector()

    def probabilities(self, state: Vector, purse: Purse) -> Vector:
        seen = self._see(state, purse)
        outer = self.sampler.probabilities(seen.parts.outer, seen.purse)
        if seen.within is None:
            return outer
        chances: Vector = outer[seen.parts.court.arm] * seen.within
        chances /= chances.sum()
        return chances

    def draw(self, state: Vector, rng: np.random.Generator, size: int, purse: Purse) -> Draws:
        seen = self._see(state, purse)
        arms = self.sampler.draw(seen.parts.outer, rng, size, seen.purse)
        if seen.within is None:
            return arms
        chosen = {}
        for arm in dict.fromkeys(arms.tolist()):
            members = np.flatnonzero((seen.parts.court.arm == arm) & seen.open)
            ladder = seen.within[members].cumsum()
            at = int(ladder.searchsorted(rng.random() * ladder[-1], side="right"))
            chosen[arm] = int(members[min(at, len(members) - 1)])
        return np.array([chosen[arm] for arm in arms.tolist()], dtype=np.int64)

    def update(self, state: Vector, draws: Draws, gains: Vector, purse: Purse) -> Vector:
        seen = self._see(state, purse)
        parts = seen.parts
        outer = self.sampler.update(parts.outer, parts.court.arm[draws], gains, seen.purse)
        return parts._replace(outer=outer, inner=self.sampler.update(parts.inner, draws, gains, purse)).vector()

    def _parts(self, state: Vector, providers: int) -> _Parts:
        size = (len(state) - 1 - COLUMNS * providers) // 2
        return _Parts(state[:size], state[size : 2 * size], Court.of(state[2 * size : -1]), float(state[-1]))

    def _see(self, state: Vector, purse: Purse) -> _Seen:
        parts = self._parts(state, len(purse.quotes))
        court, open_ = parts.court, _open(parts, purse)
        if court.plain and bool(open_.all()):
            return _Seen(parts, open_, None, purse)
        p = self.sampler.probabilities(parts.inner, purse)
        within = _within(court, np.where(open_ & purse.available, p, 0.0), open_ & purse.available)
        return _Seen(parts, open_, within, _arm_purse(court, open_, within, purse))


class _Parts(NamedTuple):
    """The state: that of the sampler over arms, of the one over providers, the court, and the most that an arm may
    cost, 0 where there is no cap."""

    outer: Vector
    inner: Vector
    court: Court
    cap: float

    def vector(self) -> Vector:
        return np.concatenate([self.outer, self.inner, self.court.vector(), [self.cap]])


class _Seen(NamedTuple):
    """A state and a purse as a round sees them: who may be drawn, each one's share of its arm, and the purse of arms.
    There are no shares where everybody is an arm of its own and may be drawn: the purse is then the one that came."""

    parts: _Parts
    open: NDArray[np.bool_]
    within: Vector | None
    purse: Purse


def _open(parts: _Parts, purse: Purse) -> NDArray[np.bool_]:
    """Who may be drawn: neither flagged nor beyond the cap, unless nobody is left."""
    court, open_ = parts.court, ~parts.court.flagged
    if parts.cap:
        below = open_ & (court.asked[court.arm] + purse.quotes <= parts.cap)
        open_ = below if (below & purse.available).any() else open_
    return open_ if (open_ & purse.available).any() else np.ones_like(open_)


def _within(court: Court, p: Vector, can: NDArray[np.bool_]) -> Vector:
    """p_i / Σ p over the arm of i, of those who can be drawn; evenly where p is nothing for all of them."""
    n = len(p)
    p = np.where(can & (np.bincount(court.arm, p, n)[court.arm] <= 0), 1.0, p)
    sums = np.bincount(court.arm, p, n)[court.arm]
    share: Vector = p / np.where(sums > 0, sums, 1.0)
    return share


def _arm_purse(court: Court, open_: NDArray[np.bool_], within: Vector, purse: Purse) -> Purse:
    """The purse as arms see it: an arm costs what its providers do in the mean, and is there while one of them is.
    Places that stand for no arm are used up."""
    n = len(purse.quotes)
    costs = np.bincount(court.arm, within * purse.quotes, n)
    quotes = np.where(costs > 0, np.ceil(costs - 1e-9), purse.quotes).astype(np.int64)
    left = np.zeros(n, dtype=np.int64)
    left[np.bincount(court.arm, (open_ & purse.available).astype(np.float64), n) > 0] = 2**62
    return replace(purse, quotes=np.minimum(quotes, purse.money), accesses_left=left, most_per_access=None)
