"""What providers as good as one another ask: the price that a price is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SHARPNESS = 2.0
"""How fast a worse provider stops counting as a peer: by e^(−2 d), where it is behind by d in log worth."""
FARTHEST = 150.0
"""Where log worths are cut off: e^(2 · 150) still is a number, and whoever is behind by that counts for nothing."""


def log_peer_prices(log_worth: Vector, log_prices: Vector) -> Vector:
    r"""For every provider the mean log price of those who are as good or better; of worse ones the less, the worse.

    .. math:: \log c^*_i = \sum_j m_{ij} \log c_j \Big/ \sum_j m_{ij}, \qquad m_{ij} = \min(1, e^{2(\ell_j - \ell_i)}).

    It counts itself, so that whoever has no equal is compared with its own price and those of its betters. Sorted by
    worth, both sums are a cumulated sum from above and one from below: O(n log n), and nothing overflows.

    >>> prices = np.log([10.0, 20.0, 20.0, 1.0])
    >>> np.exp(log_peer_prices(np.array([0.0, 0.0, 0.0, -9.0]), prices)).round(1)  # three equals, and one far behind
    array([15.9, 15.9, 15.9,  8. ])
    """
    order = (-log_worth).argsort(kind="stable")
    worth = np.maximum(log_worth[order] - log_worth[order[0]], -FARTHEST)
    prices = log_prices[order]
    weights = np.exp(SHARPNESS * worth)
    betters, better_prices = np.arange(1, len(order) + 1), prices.cumsum()
    worse = _sum_after(weights) / weights
    worse_prices = _sum_after(weights * prices) / weights
    peers = np.empty_like(prices)
    peers[order] = (better_prices + worse_prices) / (betters + worse)
    return peers


def _sum_after(values: Vector) -> Vector:
    """Σ_{j>i} of each place."""
    sums = np.zeros(len(values))
    sums[:-1] = values[:0:-1].cumsum()[::-1]
    return sums
