"""Curves of many points, drawn with few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 2000


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where points are drawn, and how high: all of a short curve; of a long one the ends, and the lowest and the
    highest point of each stretch, so that nothing that stands out is lost.

    >>> places, heights = thinned([0.0, 1.0, 9.0, 1.0, 2.0, -5.0, 2.0, 3.0], most=4)
    >>> places.tolist(), heights.tolist()
    ([0, 2, 5, 7], [0.0, 9.0, -5.0, 3.0])
    """
    heights = np.asarray(values, dtype=np.float64)
    if len(heights) <= most:
        return np.arange(len(heights)), heights
    stretches = np.array_split(np.arange(len(heights)), max(most // 2, 1))
    low = [at[np.nan_to_num(heights[at], nan=np.inf).argmin()] for at in stretches]
    high = [at[np.nan_to_num(heights[at], nan=-np.inf).argmax()] for at in stretches]
    places = np.unique([0, *low, *high, len(heights) - 1])
    return places, heights[places]
