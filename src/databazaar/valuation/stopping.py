"""When to stop sampling permutations: rules that compose with `|` (either) and `&` (both).

A rule is a pure function of a `History`. It answers with the reason to stop, in words, or with None. Methods check
it after every permutation, and `capped` makes sure that none of them can go on without end. Permutations come in
blocks, so a rule may also judge all `Histories` of a block at once; what it says must be the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.valuation.history import Histories, History

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_PERMUTATIONS = 10_000
"""The cap that a rule gets which has none of its own."""


class Rule:
    """Base of all rules."""

    memory: int = 1
    """How many of the latest estimates the rule looks at."""
    ends: bool = False
    """Whether it is sure to stop any method some day."""
    earliest: int = 1
    """Before so many permutations it never stops, and need not be asked."""

    def reason(self, history: History) -> str | None:
        """Why to stop now, or None to go on."""
        raise NotImplementedError

    def stops(self, histories: Histories) -> Flags:
        """Where along a block it has a reason to stop: `reason` at every row, in one go where a rule knows how."""
        return np.array([self.reason(histories.at(row)) is not None for row in range(len(histories))])

    def permutations_left(self, history: History) -> float:
        """After how many more permutations it may stop at the latest, at the cost per permutation so far."""
        return math.inf

    def share(self, history: History) -> float:
        """A guess which share of the way is gone, for progress bars; 0 where there is none."""
        return 0.0

    def __or__(self, other: Rule) -> Rule:
        return Either(self, other)

    def __and__(self, other: Rule) -> Rule:
        return Both(self, other)


@dataclass(frozen=True)
class Either(Rule):
    """Stops as soon as one of two rules does."""

    left: Rule
    right: Rule

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", max(self.left.memory, self.right.memory))
        object.__setattr__(self, "ends", self.left.ends or self.right.ends)
        object.__setattr__(self, "earliest", min(self.left.earliest, self.right.earliest))

    def reason(self, history: History) -> str | None:
        return self.left.reason(history) or self.right.reason(history)

    def stops(self, histories: Histories) -> Flags:
        return self.left.stops(histories) | self.right.stops(histories)

    def permutations_left(self, history: History) -> float:
        return min(self.left.permutations_left(history), self.right.permutations_left(history))

    def share(self, history: History) -> float:
        return max(self.left.share(history), self.right.share(history))


@dataclass(frozen=True)
class Both(Rule):
    """Stops when both rules do."""

    left: Rule
    right: Rule

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", max(self.left.memory, self.right.memory))
        object.__setattr__(self, "ends", self.left.ends and self.right.ends)
        object.__setattr__(self, "earliest", max(self.left.earliest, self.right.earliest))

    def reason(self, history: History) -> str | None:
        reasons = self.left.reason(history), self.right.reason(history)
        return None if None in reasons else f"{reasons[0]} and {reasons[1]}"

    def stops(self, histories: Histories) -> Flags:
        return self.left.stops(histories) & self.right.stops(histories)

    def permutations_left(self, history: History) -> float:
        return max(self.left.permutations_left(history), self.right.permutations_left(history))

    def share(self, history: History) -> float:
        return min(self.left.share(history), self.right.share(history))


@dataclass(frozen=True)
class BackCheck(Rule):
    """Mean over providers of non-zero value of |v^t − v^{t−length}| / |v^t| below `tolerance`.

    The criterion behind the paper's figures (G-Shapley: 10 and 0.01; FedSV-PS: 10 and 0.05). Where all values are
    zero and were so before, the mean is over nobody and nothing moves: that stops, too.
    """

    length: int = 10
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        _positive(length=self.length, tolerance=self.tolerance)
        object.__setattr__(self, "memory", self.length + 1)
        object.__setattr__(self, "earliest", self.length + 1)

    def reason(self, history: History) -> str | None:
        if len(history.estimates) <= self.length:
            return None
        now, before = history.estimates[-1], history.estimates[-1 - self.length]
        change = float(_changes(now, before))
        if not change < self.tolerance:
            return None
        return f"values moved by {change:.2g} in {self.length} permutations" if now.any() else "all values are zero"

    def stops(self, histories: Histories) -> Flags:
        stops = np.zeros(len(histories), dtype=bool)
        row = max(0, self.length - histories.earlier)  # the first that has an estimate so far back
        now = histories.estimates[histories.earlier + row :]
        before = histories.estimates[histories.earlier + row - self.length :][: len(now)]
        stops[row:] = _changes(now, before) < self.tolerance
        return stops

    def share(self, history: History) -> float:
        """The change falls as 1/t, so that tolerance/change of the way is gone."""
        if len(history.estimates) <= self.length:
            return 0.0
        change = float(_changes(history.estimates[-1], history.estimates[-1 - self.length]))
        return min(1.0, self.tolerance / change) if change else 1.0


def _changes(now: Vector, before: Vector) -> Vector:
    """Row by row the mean of |now − before| / |now| where now ≠ 0; over nobody it is 0, or ∞ if something was there."""
    valued = now != 0
    count = valued.sum(-1)
    moved = np.divide(np.abs(now - before), np.abs(now), out=np.zeros(now.shape), where=valued)
    nobody = np.where(before.any(-1), np.inf, 0.0)
    return np.where(count > 0, moved.sum(-1) / np.maximum(count, 1), nobody)


@dataclass(frozen=True)
class GhorbaniZou(Rule):
    """The largest, over the last `window` permutations s, of (1/n) Σ |v^s − v^t| / (|v^t| + 1e-12), below `tolerance`.

    Ghorbani & Zou (2019), as the paper's Appendix A.1 refers to it.
    """

    tolerance: float = 0.05
    window: int = 100

    def __post_init__(self) -> None:
        _positive(tolerance=self.tolerance, window=self.window)
        object.__setattr__(self, "memory", self.window + 1)
        object.__setattr__(self, "earliest", self.window + 1)

    def reason(self, history: History) -> str | None:
        if len(history.estimates) <= self.window:
            return None
        now = history.estimates[-1]
        past = np.asarray(history.estimates[-1 - self.window : -1])
        change = float((np.abs(past - now) / (np.abs(now) + 1e-12)).mean(1).max())
        if change >= self.tolerance:
            return None
        return f"values moved by at most {change:.2g} in the last {self.window} permutations"


@dataclass(frozen=True)
class StandardErrorBelow(Rule):
    """Every provider's standard error below `size`, in units of the utility; never before two permutations."""

    size: float

    def __post_init__(self) -> None:
        _positive(size=self.size)

    def reason(self, history: History) -> str | None:
        if history.permutations < 2:
            return None
        largest = float(history.standard_errors.max())
        return f"the largest standard error is {largest:.2g}" if largest < self.size else None

    def stops(self, histories: Histories) -> Flags:
        return np.asarray((histories.standard_errors.max(1) < self.size) & (histories.permutations >= 2))


@dataclass(frozen=True)
class _Most(Rule):
    """A maximum of something that grows."""

    count: float
    unit: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    """What it limits, as histories name it."""

    def __post_init__(self) -> None:
        _positive(count=self.count)

    def spent(self, history: History) -> float:
        return float(getattr(history, self.cost))

    def stops(self, histories: Histories) -> Flags:
        return np.asarray(histories.spent(self.cost) >= self.count)

    def share(self, history: History) -> float:
        return min(1.0, self.spent(history) / self.count)

    def reason(self, history: History) -> str | None:
        return f"the cap of {self.count:,} {self.unit}" if self.spent(history) >= self.count else None

    def permutations_left(self, history: History) -> float:
        spent = self.spent(history)
        return max(0.0, self.count - spent) * history.permutations / spent if spent else math.inf


@dataclass(frozen=True)
class MaxPermutations(_Most):
    """At most `count` permutations."""

    unit: ClassVar[str] = "permutations"
    cost: ClassVar[str] = "permutations"
    ends = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "earliest", math.ceil(self.count))

    def stops(self, histories: Histories) -> Flags:
        return np.asarray(histories.permutations >= self.count)

    def permutations_left(self, history: History) -> float:
        return max(0.0, self.count - history.permutations)


@dataclass(frozen=True)
class MaxSeconds(_Most):
    """About `count` seconds of wall time: the permutations under way are finished."""

    unit: ClassVar[str] = "seconds"
    cost: ClassVar[str] = "seconds"
    ends = True


@dataclass(frozen=True)
class MaxOracleCalls(_Most):
    """About `count` oracle calls: the permutation under way is finished."""

    unit: ClassVar[str] = "oracle calls"
    cost: ClassVar[str] = "oracle_calls"


@dataclass(frozen=True)
class MaxEvaluations(_Most):
    """About `count` utility evaluations: the permutation under way is finished."""

    unit: ClassVar[str] = "utility evaluations"
    cost: ClassVar[str] = "utility_evaluations"


def capped(rule: Rule, most: int = MOST_PERMUTATIONS) -> Rule:
    """The rule itself where it is sure to end, else with a cap on permutations beside it.

    >>> capped(BackCheck()) == BackCheck() | MaxPermutations(10_000)
    True
    >>> capped(MaxSeconds(60))
    MaxSeconds(count=60)
    """
    return rule if rule.ends else rule | MaxPermutations(most)


def _positive(**settings: float) -> None:
    for name, value in settings.items():
        if not value > 0:
            raise BazaarError(f"stopping rule: {name} = {value} must be positive")
