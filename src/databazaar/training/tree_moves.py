"""What a round of boosting has moved, and what each row has brought to that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from databazaar.learning.trees.bins import Binned
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import row_parts
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.tree import Grown, additions, leaves_of, part_predictions

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows of several parties, one party after the other, `sizes` of each. Those of the first `counted` parties are
    what a leaf must have `min_rows` of: with the buyer's own in the number, who knows these could make leaves in which
    a single bought row is left to be read."""

    binned: Binned
    scores: Numbers
    y: Numbers
    weight: Numbers
    aside: NDArray[np.bool_]
    """No tree is ever grown on these: they judge."""
    sizes: Sequence[int]
    counted: int

    def at(self, places: NDArray[np.bool_]) -> Rows:
        """Those at some places."""
        ends = np.cumsum([0, *self.sizes])
        sizes = [int(places[start:end].sum()) for start, end in pairwise(ends)]
        binned, scores, y = self.binned[places], self.scores[places], self.y[places]
        return Rows(binned, scores, y, self.weight[places], self.aside[places], sizes, self.counted)


@dataclass(frozen=True)
class Addition:
    """Trees that a round has added, one a class; the rows as they were before it; and the leaves [rows, classes] that
    these and the rows of the hold-out are in."""

    rows: Rows
    grown: Sequence[Grown]
    leaves: NDArray[np.intp]
    of_holdout: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Rows, grown: Sequence[Grown], holdout: Binned) -> Addition:
        return cls(rows, grown, leaves_of(grown, rows.binned), leaves_of(grown, holdout))

    @property
    def scores(self) -> Numbers:
        """Of the rows, with these trees."""
        return self.rows.scores + additions(self.grown, self.leaves)

    @property
    def parts(self) -> Numbers:
        return part_predictions(self.grown, self.of_holdout)

    def row_gains(self, gradients: Numbers, slope: Numbers, growth: Growth) -> Numbers:
        """Each row's part of every leaf times the derivatives of the hold-out's rows there."""
        found = np.zeros(len(self.leaves))
        for place, each in enumerate(self.grown):
            pull = np.bincount(self.of_holdout[:, place], slope[:, place], each.tree.leaves)
            at = self.leaves[:, place]
            counts = np.bincount(at[~self.rows.aside], minlength=each.tree.leaves).astype(np.float64)
            found += row_parts(each.tree, at, gradients[:, place], counts, growth) * pull[at]
        return found


@dataclass(frozen=True)
class Move:
    """What a round comes to: the ensemble after it; the parts of its move on the hold-out [parties, rows, classes],
    those of the providers that count and the buyer's where it has training rows; and what was added one after the
    other. No tree is grown on rows that are `aside`."""

    after: Ensemble
    parts: Numbers
    added: Sequence[Addition]
    aside: NDArray[np.bool_]

    @property
    def scores(self) -> list[Numbers]:
        """Of each party's rows, before the round."""
        before = self.added[0].rows
        return np.split(before.scores, np.cumsum(before.sizes)[:-1])

    def row_gains(self, slope: Numbers, growth: Growth) -> list[Numbers]:
        """What each row of each party brings, per draw, where the utility has this derivative by the hold-out's scores
        [rows, classes]."""
        rows, found = self.added[0].rows, np.zeros(len(self.aside))
        for one in self.added:
            gradients, _ = self.after.objective.gradients(one.rows.scores, one.rows.y, one.rows.weight)
            found += one.row_gains(gradients, slope, growth)
        return np.split(np.where(self.aside, 0.0, found / rows.weight), np.cumsum(rows.sizes)[:-1])
