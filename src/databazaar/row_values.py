"""What single rows bring: the first-order value of each row that a round judges, and its loss before the round.

A party's part of a round's move is a sum over its rows, in all families that train on rows, so its gain is one to first
order. Row j of provider i has the gain

    ∂U/∂m · (row j's part of the move) / (times that i was drawn)

at the model before the round (training/in_run.py), or halfway between it and the one after (predictions: there the sum
over a provider's rows is its gain up to third order). The derivative of a utility that has none is that of −loss.

Sums over the rounds are kept beside the state, for statements and `databazaar.valuation.row_values`: no round looks at
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
TIMES, BROUGHT, FIT = range(3)
"""The columns of sums."""


@dataclass(frozen=True)
class JudgedRows:
    """The gain and the loss of the first rows of an answer, in its order."""

    gains: Numbers
    losses: Numbers


@dataclass(frozen=True, eq=False)
class RowSums:
    """Of a provider's whole table [rows, 3]: how often a row was judged, the sum of its gains, and the sum of
    L − l: the hold-out's mean loss in the model that a round began with, less the row's."""

    sums: Numbers

    @property
    def times(self) -> NDArray[np.int64]:
        return self.sums[:, TIMES].astype(np.int64)

    @property
    def brought(self) -> Numbers:
        """What each row has brought in all. Over a provider's rows it sums to the provider's first-order gains, where
        all of its rows were judged."""
        found: Numbers = self.sums[:, BROUGHT].copy()
        return found

    @property
    def fit(self) -> Numbers:
        """By how much the row's loss was below the hold-out's, mean over the rounds that judged it; 0 where none did.
        It is lowest where the other rows speak against a row's target."""
        found: Numbers = self.sums[:, FIT] / np.maximum(self.sums[:, TIMES], 1)
        return found


Sums = Mapping[int, Numbers]
"""Sums by provider, as `RowSums` has them."""


def added(
    sums: Sums, judged: Mapping[int, JudgedRows], places: Mapping[int, NDArray[np.int64]], loss: float | None
) -> Sums:
    """The sums with one more round, at whose beginning the hold-out had this loss."""
    grown = dict(sums)
    for i, rows in judged.items():
        at, known = places[i][: len(rows.gains)], grown.get(i, np.zeros((0, 3)))
        new = np.zeros((max(len(known), int(at.max(initial=-1)) + 1), 3))
        new[: len(known)] = known
        new[at] += np.stack([np.ones(len(at)), rows.gains, (loss or 0.0) - rows.losses], axis=1)
        grown[i] = new
    return grown
