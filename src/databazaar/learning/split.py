"""The consumer's own rows divided among their purposes: to start from, to judge by, and to audit the purchase."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Places = NDArray[np.int64]


def split_rows(y: NDArray[np.generic], shares: Sequence[float], what: str = "the rows") -> list[Places]:
    """Places of rows, one array a share, each in the rows' order; the last share is what the others leave.

    Every class is divided alike (whole numbers are classes). The division depends on the targets alone and on no seed:
    a market that is played again with another seed judges by the same rows.

    >>> [part.tolist() for part in split_rows(np.array([0, 0, 0, 0, 1, 1, 1, 1]), (0.5, 0.25, 0.25))]
    [[1, 3, 4, 7], [2, 5], [0, 6]]
    """
    if not len(shares) or any(share < 0 for share in shares) or not 0.999 < sum(shares) < 1.001:
        raise BazaarError(f"{what}: shares of {list(shares)} must be zero or more and sum to 1")
    rng = np.random.default_rng(len(y))
    groups = [np.flatnonzero(y == label) for label in np.unique(y)] if y.dtype.kind in "iub" else [np.arange(len(y))]
    ends = np.array(list(accumulate(shares))[:-1])
    part_of = np.empty(len(y), dtype=np.int64)
    for group in groups:
        depth = (np.arange(len(group)) + 0.5) / len(group)
        part_of[rng.permutation(group)] = np.searchsorted(ends, depth, side="right")
    parts = [np.flatnonzero(part_of == part) for part in range(len(shares))]
    for share, part in zip(shares, parts, strict=True):
        if share > 0 and not len(part):
            raise BazaarError(f"{what}: {len(y)} rows are too few to keep {share:.0%} of them apart: add rows")
    return parts
