"""How far a computation is: the share of its work that is done, in this process or in others."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass

from databazaar_experiments.parts import Part

Shares = MutableSequence[float]
WAITING = -1.0
"""In place of a share, while a part has not begun."""


def new_shares(count: int, jobs: int) -> Shares:
    """One share a part; for several processes in memory that they have in common, without a lock."""
    if jobs == 1:
        return [WAITING] * count
    shared: Shares = multiprocessing.get_context("spawn").RawArray("d", [WAITING] * count)
    return shared


@dataclass(frozen=True)
class ComputeProgress:
    """Parts `done` of `count`, and the `share` of all the work, which never goes back.

    Where a part was just `finished`, `seconds` is what it took.
    """

    done: int
    count: int
    share: float
    running: tuple[Part, ...]
    finished: Part | None = None
    seconds: float = 0.0


Listener = Callable[[ComputeProgress], None]


class Meter:
    """Adds up the shares of all parts, each weighted by its size, and reports the sum to a listener.

    Whoever computes a part raises its share: `advance` in this process, or other processes in the shared memory.
    """

    def __init__(self, parts: Sequence[Part], sizes: Sequence[float], shares: Shares, listener: Listener) -> None:
        self.parts, self.sizes, self.shares, self.listener = parts, sizes, shares, listener
        self._finished: set[int] = set()

    def advance(self, place: int, share: float) -> None:
        """So much of the part at this place is done; the first call says that it has begun."""
        self.shares[place] = share
        self.report()

    def finish(self, place: int, seconds: float) -> None:
        self._finished.add(place)
        self.shares[place] = 1.0
        self.report(self.parts[place], seconds)

    def report(self, finished: Part | None = None, seconds: float = 0.0) -> None:
        shares = list(self.shares)
        work = sum(size * max(share, 0.0) for size, share in zip(self.sizes, shares, strict=True))
        places = (place for place, share in enumerate(shares) if share != WAITING and place not in self._finished)
        running = tuple(self.parts[place] for place in places)
        done, count = len(self._finished), len(self.parts)
        share = 1.0 if done == count else work / sum(self.sizes)
        self.listener(ComputeProgress(done, count, share, running, finished, seconds))
