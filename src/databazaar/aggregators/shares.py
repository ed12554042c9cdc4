"""How many of a round's updates a rule takes for arbitrary."""

from __future__ import annotations

import math


def suspects(share: float, updates: int) -> int:
    """A share of the updates, rounded up, but always fewer than half of them: the others must be able to outvote them.

    Rounds differ in length. One or two updates tell nobody which of them is wrong, and none is suspected.

    >>> [suspects(0.3, updates) for updates in range(1, 11)]
    [0, 0, 1, 1, 2, 2, 3, 3, 3, 3]
    """
    return min(math.ceil(share * updates - 1e-9), (updates - 1) // 2)
