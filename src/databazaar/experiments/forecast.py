"""An honest time left: what is known about each kind of chore from those that are done."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable


class Forecast:
    """Chores have a kind and a cost; chores of one kind take about as long for each unit of their cost."""

    def __init__(
        self, chores: Iterable[tuple[Hashable, float]], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.left: dict[Hashable, float] = defaultdict(float)
        self.done: dict[Hashable, float] = defaultdict(float)
        self.seconds: dict[Hashable, float] = defaultdict(float)
        for kind, cost in chores:
            self.left[kind] += cost
        self.clock, self.begun = clock, clock()

    def finished(self, kind: Hashable, cost: float, seconds: float) -> None:
        self.left[kind] -= cost
        self.done[kind] += cost
        self.seconds[kind] += seconds

    def seconds_left(self) -> float:
        """Kinds that were not met yet go at the pace of all the others together."""
        busy, worked = sum(self.seconds.values()), sum(self.done.values())
        wall = self.clock() - self.begun
        if not (busy and worked and wall):
            return float("nan")
        pace = {kind: self.seconds[kind] / self.done[kind] for kind in self.seconds}
        expected = sum(cost * pace.get(kind, busy / worked) for kind, cost in self.left.items())
        return max(expected, 0.0) * wall / busy  # busy / wall is how many chores run at a time
