"""From values to integer money: the parts always sum to the budget."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Mode = Literal["positive", "shifted"]


def payouts(values: Sequence[float] | NDArray[np.float64], budget: int, mode: Mode = "positive") -> list[int]:
    """Splits `budget` minor units in proportion to max(v, 0), or to v − min v.

    "positive" is the paper's text (Section 5.1), "shifted" what its figures show. Where that leaves nobody a
    positive share (all values ≤ 0, or all equal when shifted), everybody gets an equal part. Fractions are
    exact, and minor units left over go to the largest remainders, on a tie to whoever comes first.

    >>> payouts([3.0, 1.0, -2.0], 10)
    [8, 2, 0]
    >>> payouts([3.0, 1.0, -2.0], 10, "shifted")
    [6, 4, 0]
    >>> payouts([-1.0, -2.0, -3.0], 10)
    [4, 3, 3]
    """
    if mode not in get_args(Mode):
        raise BazaarError(f"payout mode {mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise BazaarError(f"budget = {budget!r} must be a whole number of minor units, zero or more")
    exact = [_finite(float(value)) for value in values]
    if not exact:
        raise BazaarError("there is nobody to pay: give at least one value")
    floor = min(exact) if mode == "shifted" else Fraction(0)
    weights = [max(value - floor, Fraction(0)) for value in exact]
    return largest_remainder(weights, int(budget))


def largest_remainder(weights: Sequence[Fraction], budget: int) -> list[int]:
    """Whole parts of `budget` in proportion to non-negative weights; equal parts where all weights are zero."""
    total = sum(weights, Fraction(0))
    shares = [budget * w / total if total else Fraction(budget, len(weights)) for w in weights]
    parts = [int(share) for share in shares]
    neediest = sorted(range(len(parts)), key=lambda i: (parts[i] - shares[i], i))
    for i in neediest[: budget - sum(parts)]:
        parts[i] += 1
    assert sum(parts) == budget
    return parts


def _finite(value: float) -> Fraction:
    if not np.isfinite(value):
        raise BazaarError(f"a value of {value} cannot be paid: find out which provider's utility is not a number")
    return Fraction(value)
