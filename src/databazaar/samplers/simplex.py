"""The mirror step of the paper: Algorithm 2, in log space and without a loop over providers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def project_clipped_simplex(log_weights: Vector, alpha: float) -> Vector:
    r"""Logarithm of the entropic projection of positive weights onto the clipped simplex.

    Solves, for weights y = exp(log_weights) (Algorithm 2; Lemma C.2 of the paper),

    .. math:: \min_{q} \sum_i q_i \log(q_i / y_i) \quad\text{s.t.}\quad \sum_i q_i = 1,\; q_i \ge \alpha/n.

    The solution puts the smallest weights at the floor α/n and scales the others by one common factor.
    With y sorted upwards, those from the first i with y_i (1 − (i−1)α/n) > (α/n) Σ_{j≥i} y_j on are scaled.
    Only where that threshold lies is needed, so the values are sorted and not the indices.

    Departures from the paper: weights are divided by the largest before `exp`, so that none overflows, and
    the result is returned as log q, so that with α = 0 a tiny probability is not lost as zero.

    >>> np.exp(project_clipped_simplex(np.log([0.7, 0.2, 0.1]), alpha=0.6)).round(3)
    array([0.6, 0.2, 0.2])
    """
    n = len(log_weights)
    relative: Vector = log_weights - np.maximum.reduce(log_weights)
    if alpha == 0:
        return np.asarray(relative - np.log(np.exp(relative).sum()))
    floor = alpha / n
    rising = relative.copy()
    rising.sort()
    np.exp(rising, out=rising)
    tails: Vector = rising[::-1].cumsum()[::-1]  # Σ_{j≥i} y_j, the large ones added first
    left_over, log_floor = _left_over(n, floor)
    above = rising * left_over > floor * tails
    first = int(above.argmax())
    if not above[first]:  # only with α = 1: the clipped simplex is the uniform distribution alone
        return np.full(n, log_floor)
    relative += np.log(left_over[first]) - np.log(tails[first])
    np.maximum(relative, log_floor, out=relative)
    return relative


@lru_cache(maxsize=8)
def _left_over(n: int, floor: float) -> tuple[Vector, np.float64]:
    """1 − (i−1)α/n for every i, and log(α/n): the same in every round of a market."""
    left_over: Vector = 1.0 - floor * np.arange(n, dtype=np.float64)
    left_over.flags.writeable = False
    return left_over, np.log(floor)
