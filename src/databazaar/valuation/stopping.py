"""When to stop sampling permutations: rules that compose with `|` (either) and `&` (both).

A rule is a pure function of a `History`: it answers with the reason to stop, in words, or with None. Methods ask it
after every permutation, and `capped` gives a cap to a rule that might never stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.valuation.result import Cost, Vector

MOST_PERMUTATIONS = 10_000
"""The cap that a rule gets which has none of its own."""


@dataclass(frozen=True)
class History:
    """How far a method has come: estimates after each of the latest permutations (the newest last), and its cost."""

    estimates: Sequence[Vector]
    standard_errors: Vector
    cost: Cost


class Rule:
    """Base of all rules."""

    memory: int = 1
    """How many of the latest estimates the rule looks at."""
    ends: bool = False
    """Whether it is sure to stop any method some day."""

    def reason(self, history: History) -> str | None:
        """Why to stop now, or None to go on."""
        raise NotImplementedError

    def permutations_left(self, history: History) -> float:
        """After how many more permutations it stops at the latest, at the cost per permutation so far."""
        return math.inf

    def __or__(self, other: Rule) -> Rule:
        return Combined(self, other, both=False)

    def __and__(self, other: Rule) -> Rule:
        return Combined(self, other, both=True)


@dataclass(frozen=True)
class Combined(Rule):
    """Stops as soon as one of two rules does, or when both do."""

    left: Rule
    right: Rule
    both: bool

    def __post_init__(self) -> None:
        rules = self.left, self.right
        object.__setattr__(self, "memory", max(rule.memory for rule in rules))
        object.__setattr__(self, "ends", (all if self.both else any)(rule.ends for rule in rules))

    def reason(self, history: History) -> str | None:
        left, right = self.left.reason(history), self.right.reason(history)
        if not self.both:
            return left or right
        return None if left is None or right is None else f"{left} and {right}"

    def permutations_left(self, history: History) -> float:
        left = self.left.permutations_left(history), self.right.permutations_left(history)
        return max(left) if self.both else min(left)


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

    def reason(self, history: History) -> str | None:
        if len(history.estimates) <= self.length:
            return None
        now, before = history.estimates[-1], history.estimates[-1 - self.length]
        valued = now != 0
        if not valued.any():
            return None if before.any() else "all values are zero"
        change = float((np.abs(now - before)[valued] / np.abs(now[valued])).mean())
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
        if history.cost.permutations < 2:
            return None
        largest = float(history.standard_errors.max())
        return f"the largest standard error is {largest:.2g}" if largest < self.size else None


@dataclass(frozen=True)
class Maximum(Rule):
    """About `count` of one of the costs: the permutations under way are finished."""

    count: float
    cost: ClassVar[str]
    ends = True

    def __post_init__(self) -> None:
        _positive(count=self.count)

    def reason(self, history: History) -> str | None:
        return f"the cap of {self.count:,} {self.cost}" if getattr(history.cost, self.cost) >= self.count else None

    def permutations_left(self, history: History) -> float:
        spent = getattr(history.cost, self.cost)
        return max(0.0, self.count - spent) * history.cost.permutations / spent if spent else math.inf


@dataclass(frozen=True)
class MaxPermutations(Maximum):
    """At most `count` permutations."""

    cost = "permutations"

    def permutations_left(self, history: History) -> float:
        return max(0.0, self.count - history.cost.permutations)


@dataclass(frozen=True)
class MaxSeconds(Maximum):
    """About `count` seconds of wall time: the permutations under way are finished."""

    cost = "seconds"


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
