"""An honest time left: what is known about each kind of chore from those that are done and those that run."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

QUIET = 5.0
"""Seconds before a time left is told at all: until then it would be a guess."""
SET_UP = 0.02
"""A first share up to this is where the work begins: what came before it, loading and warming up, tells no pace."""


Kind = tuple[str, ...]
"""From the coarse to the fine: a kind that was not met yet goes at the pace of the nearest that begins alike."""


@dataclass(frozen=True)
class Work:
    """Chores of one kind take about as long for each unit of their cost. What is `alone` has no other beside it."""

    kind: Kind
    cost: float
    alone: bool = False


@dataclass
class _Running:
    """A chore under way. Its pace is measured from `since`, when `share_then` was done, to the last share told."""

    begun: float
    since: float
    share_then: float = 0.0
    share: float = 0.0
    told: float = 0.0

    def tell(self, share: float, now: float) -> None:
        if share > self.share:
            if self.share == 0 and share <= SET_UP:
                self.since, self.share_then = now, share
            self.share, self.told = min(share, 1.0), now

    @property
    def paced(self) -> bool:
        return self.share > self.share_then and self.told > self.since

    def left(self, now: float) -> float:
        """By its own pace; late for its next share, it is not taken to be as good as done."""
        left = (1 - self.share) * (self.told - self.since) / (self.share - self.share_then)
        return max(left - (now - self.told), left / 10)


class Forecast:
    """Keeps account of chores by their place. Up to `workers` of those that are not `alone` run at a time."""

    def __init__(self, works: Sequence[Work], workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.works, self.workers, self.clock = works, max(workers, 1), clock
        self.running: dict[int, _Running] = {}
        self.seconds: dict[int, float] = {}
        self.begun, self.shown = clock(), 0.0

    def tell(self, place: int, share: float) -> None:
        """This much of a chore is done; the first call says that it has begun."""
        if place not in self.seconds:
            now = self.clock()
            self.running.setdefault(place, _Running(now, now)).tell(share, now)

    def finished(self, place: int, seconds: float) -> None:
        self.running.pop(place, None)
        self.seconds[place] = seconds

    def seconds_left(self) -> float:
        """Not a number while too little is known."""
        left = self._left()
        if left is None:
            return math.nan
        free = [seconds for place, seconds in left.items() if not self.works[place].alone]
        alone = sum(seconds for place, seconds in left.items() if self.works[place].alone)
        return max(sum(free) / self.workers, max(free, default=0.0)) + alone

    def share(self) -> float:
        """How much of all the time at work has passed; it never goes back."""
        left, now = self._left(), self.clock()
        if left is not None:
            passed = sum(self.seconds.values()) + sum(now - chore.begun for chore in self.running.values())
            self.shown = max(self.shown, passed / ((passed + sum(left.values())) or 1.0))
        return self.shown

    def _left(self) -> dict[int, float] | None:
        """The seconds at work of each chore that is not finished."""
        now, open_ = self.clock(), [place for place in range(len(self.works)) if place not in self.seconds]
        if not open_:
            return {}
        paces = self._paces()
        if not paces or now - self.begun < QUIET:
            return None
        left = {}
        for place in open_:
            work, running = self.works[place], self.running.get(place)
            nearest = next(paces[kind] for kind in _nearer(work.kind) if kind in paces)
            whole = work.cost * nearest
            if running is None:
                left[place] = whole
            elif running.paced:
                left[place] = running.left(now)
            else:
                left[place] = max(whole - (now - running.begun), whole / 10)
        return left

    def _paces(self) -> dict[Kind, float]:
        """Seconds a unit of cost, by kind and for all kinds alike. Empty while nothing is known."""
        seconds: dict[Kind, float] = defaultdict(float)
        costs: dict[Kind, float] = defaultdict(float)
        seen = [(place, spent, 1.0) for place, spent in self.seconds.items()]
        seen += [(p, r.told - r.since, r.share - r.share_then) for p, r in self.running.items() if r.paced]
        for place, spent, share in seen:
            for kind in _nearer(self.works[place].kind):
                seconds[kind] += spent
                costs[kind] += share * self.works[place].cost
        return {kind: seconds[kind] / cost for kind, cost in costs.items() if cost}


def _nearer(kind: Kind) -> list[Kind]:
    """
    >>> _nearer(("mlp", "osmd"))
    [('mlp', 'osmd'), ('mlp',), ()]
    """
    return [kind[:length] for length in range(len(kind), -1, -1)]
