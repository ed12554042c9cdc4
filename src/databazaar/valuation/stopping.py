"""When to stop sampling permutations: rules that compose with `|` (either) and `&` (both).

A rule is a pure function of a `History`. It answers with the reason to stop, in words, or with None. Methods check
it after every permutation, and `capped` makes sure that none of them can go on without end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Vector = NDArray[np.float64]

MOST_PERMUTATIONS = 10_000
"""The cap that a rule gets which has none of its own."""


@dataclass(frozen=True)
class History:
    """How far a method has come: estimates after each of the latest permutations (the newest last), and costs."""

    estimates: Sequence[Vector]
    standard_errors: Vector
    permutations: int
    seconds: float = 0.0
    oracle_calls: float = 0
    evaluations: float = 0


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

    def permutations_left(self, history: History) -> float:
        """After how many more permutations it may stop at the latest, at the cost per permutation so far."""
        return math.inf

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

    def permutations_left(self, history: History) -> float:
        return min(self.left.permutations_left(history), self.right.permutations_left(history))


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

    def permutations_left(self, history: History) -> float:
        return max(self.left.permutations_left(history), self.right.permutations_left(history))


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
        valued = now != 0
        if not valued.any():
            return None if before.any() else "all values are zero"
        change = float(np.mean(np.abs(now - before)[valued] / np.abs(now)[valued]))
        return f"values moved by {change:.2g} in {self.length} permutations" if change < self.tolerance else None


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
        past = np.stack(history.estimates[-1 - self.window : -1])
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


@dataclass(frozen=True)
class _Most(Rule):
    """A maximum of something that grows."""

    count: float
    unit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _positive(count=self.count)

    def spent(self, history: History) -> float:
        raise NotImplementedError

    def reason(self, history: History) -> str | None:
        return f"the cap of {self.count:,} {self.unit}" if self.spent(history) >= self.count else None

    def permutations_left(self, history: History) -> float:
        spent = self.spent(history)
        return max(0.0, self.count - spent) * history.permutations / spent if spent else math.inf


@dataclass(frozen=True)
class MaxPermutations(_Most):
    """At most `count` permutations."""

    unit: ClassVar[str] = "permutations"
    ends = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "earliest", math.ceil(self.count))

    def spent(self, history: History) -> float:
        return history.permutations

    def permutations_left(self, history: History) -> float:
        return max(0.0, self.count - history.permutations)


@dataclass(frozen=True)
class MaxSeconds(_Most):
    """About `count` seconds of wall time: the permutations under way are finished."""

    unit: ClassVar[str] = "seconds"
    ends = True

    def spent(self, history: History) -> float:
        return history.seconds


@dataclass(frozen=True)
class MaxOracleCalls(_Most):
    """About `count` oracle calls: the permutation under way is finished."""

    unit: ClassVar[str] = "oracle calls"

    def spent(self, history: History) -> float:
        return history.oracle_calls


@dataclass(frozen=True)
class MaxEvaluations(_Most):
    """About `count` utility evaluations: the permutation under way is finished."""

    unit: ClassVar[str] = "utility evaluations"

    def spent(self, history: History) -> float:
        return history.evaluations


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
