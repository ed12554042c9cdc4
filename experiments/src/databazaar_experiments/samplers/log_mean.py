"""A running mean of numbers of any size, kept as its logarithm."""

from __future__ import annotations

import math

import numpy as np


def log_mean(old: float, new: float, window: float) -> float:
    """log((1 − w) e^old + w e^new).

    >>> round(math.exp(log_mean(math.log(2.0), math.log(4.0), 0.5)), 12)
    3.0
    """
    return float(np.logaddexp(math.log(1 - window) + old, math.log(window) + new))
