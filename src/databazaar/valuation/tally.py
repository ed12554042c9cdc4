"""Counting what a method spends while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from databazaar.valuation.result import Cost


@dataclass(frozen=True)
class Spent:
    """Costs at one moment, or between two."""

    seconds: float
    oracle_calls: float
    evaluations: float
    trainings: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.seconds - other.seconds,
            self.oracle_calls - other.oracle_calls,
            self.evaluations - other.evaluations,
            self.trainings - other.trainings,
        )


class Tally:
    """A clock and counters, which only grow."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.oracle_calls = 0
        self.evaluations = 0
        self.trainings = 0

    def now(self) -> Spent:
        return Spent(time.perf_counter() - self._began, self.oracle_calls, self.evaluations, self.trainings)

    def cost(self, since: Spent | None = None, permutations: int = 0) -> Cost:
        """What was spent since some moment, or from the beginning."""
        spent = self.now() - since if since is not None else self.now()
        return Cost(int(spent.oracle_calls), int(spent.evaluations), int(spent.trainings), permutations, spent.seconds)
