"""Linear models of columns and of the grams of texts, which are too many for Newton's method: AdaGrad, pass by pass.

With d columns z, one of them the intercept's, and the set S of a row's n grams, each a bucket (data/words.py), scores
are

    θ'z + Σ_{b in S} w_b / √n.

A pass goes over all rows in batches that mix all parties. With g the gradient of a batch's mean loss, for every
parameter

    G ← G + g²,    w ← w − RATE · g / √G,    θ ← θ − RATE / √d · g / √G.

A rare gram has had few gradients, so it moves far when it is there (Duchi, Hazan and Singer 2011): no weights of grams
such as idf are needed, and nothing of anybody's vocabulary is kept. g is a sum over rows, so a pass is the sum of the
parties' parts: each one's gradients by the step that all of them together make. How closely the rows are fitted is
said by the number of passes, and by no ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from databazaar.learning.linear import LinearProblem
from databazaar.models import GRAM_BUCKETS

RATE, FIRST, BATCH = 1.0, 1e-6, 256
"""Of a step; G before the first one; rows of a batch."""
MOST_NUMBERS = 2**21
"""Weights of grams, over all outputs: with more outputs there are fewer buckets."""


def buckets_for(outputs: int) -> int:
    """
    >>> buckets_for(1), buckets_for(20)
    (262144, 65536)
    """
    buckets = GRAM_BUCKETS
    while buckets * outputs > MOST_NUMBERS and buckets > 1:
        buckets //= 2
    return buckets


@dataclass(frozen=True)
class Bags:
    """The `buckets` of the grams of rows, one row after the other, `sizes` of each."""

    buckets: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, grams: Tensor, buckets: int) -> Bags:
        """Of features [rows, slots], NaN where a slot is empty. Numbers that are no buckets count as some."""
        there = grams.isfinite()
        return cls(grams[there].long() % buckets, there.sum(1))

    def __getitem__(self, rows: Tensor) -> Bags:
        sizes, starts = self.sizes[rows], (self.sizes.cumsum(0) - self.sizes)[rows]
        shift = (starts - (sizes.cumsum(0) - sizes)).repeat_interleave(sizes)
        return Bags(self.buckets[shift + torch.arange(len(shift))], sizes)

    @cached_property
    def row(self) -> Tensor:
        """Whose each gram is."""
        return torch.arange(len(self.sizes)).repeat_interleave(self.sizes)

    @cached_property
    def share(self) -> Tensor:
        """1/√n of each gram's row."""
        return self.sizes.float().rsqrt()[self.row]

    def scores(self, weights: Tensor) -> Tensor:
        """[rows, outputs] of weights [buckets, outputs]."""
        starts = self.sizes.cumsum(0) - self.sizes
        return embedding_bag(self.buckets, weights, starts, mode="sum", per_sample_weights=self.share).double()


@dataclass(frozen=True)
class TextRows:
    """Columns and a one [rows, d], grams, targets, how often each row counts, and whose it is."""

    columns: Tensor
    bags: Bags
    y: Tensor
    times: Tensor
    party: Tensor

    @cached_property
    def there(self) -> tuple[Tensor, Tensor]:
        """The buckets that are there, and the place among them of each gram's."""
        there, place = torch.unique(self.bags.buckets, return_inverse=True)
        return there, place

    def __getitem__(self, rows: Tensor) -> TextRows:
        return TextRows(self.columns[rows], self.bags[rows], self.y[rows], self.times[rows], self.party[rows])


@dataclass(frozen=True)
class Weights:
    """`columns` θ [outputs, d], the intercept last, and `grams` w [buckets, outputs]; or G of each."""

    columns: Tensor
    grams: Tensor

    @classmethod
    def zero(cls, outputs: int, width: int) -> Weights:
        return cls(torch.zeros(outputs, width, dtype=torch.float64), torch.zeros(buckets_for(outputs), outputs))

    def scores(self, columns: Tensor, bags: Bags) -> Tensor:
        return columns @ self.columns.T + bags.scores(self.grams)

    def copy(self) -> Weights:
        return Weights(self.columns.clone(), self.grams.clone())


@dataclass(frozen=True)
class Seen:
    """The rows on which parts are seen, by the buckets that they have."""

    columns: Tensor
    bags: Bags
    known: Tensor
    """[buckets]: the place of each among those of these rows, and their count for any other."""

    @classmethod
    def of(cls, columns: Tensor, bags: Bags, buckets: int) -> Seen:
        there = torch.unique(bags.buckets)
        known = torch.full((buckets,), len(there))
        known[there] = torch.arange(len(there))
        return cls(columns, Bags(known[bags.buckets], bags.sizes), known)

    @property
    def count(self) -> int:
        return int(self.known.max()) if len(self.known) else 0


class Passes:
    """Goes over rows of several parties, in the same batches every time."""

    def __init__(self, problem: LinearProblem, rows: TextRows, order: Tensor, parties: int, seen: Seen) -> None:
        self.problem, self.parties, self.seen = problem, parties, seen
        batches = max(1, -(-len(order) // BATCH))
        self.places = [order[start::batches] for start in range(batches)]
        self.batches = [rows[places] for places in self.places]
        self.rows = rows

    def over(self, at: Weights, squares: Weights) -> tuple[Tensor, Tensor]:
        """One pass, which changes both. Gives the parties' parts of the move in scores [parties, rows seen, outputs],
        and the negative gradient that each row had in its batch [rows, outputs]."""
        outputs, width = at.columns.shape
        slopes = torch.zeros(len(self.rows.y), outputs, dtype=torch.float64)
        of_columns = torch.zeros(self.parties, outputs, width, dtype=torch.float64)
        of_grams = torch.zeros(self.parties * (self.seen.count + 1), outputs)
        for batch, places in zip(self.batches, self.places, strict=True):
            slopes[places] = self._step(batch, at, squares, of_columns, of_grams)
        of_each = of_grams.view(self.parties, -1, outputs)
        return torch.stack(list(self._parts(of_columns, of_each))), slopes

    def _step(self, batch: TextRows, at: Weights, squares: Weights, of_columns: Tensor, of_grams: Tensor) -> Tensor:
        bags = batch.bags
        slopes = self.problem.slopes(at.scores(batch.columns, bags), batch.y)[0] * batch.times[:, None]
        slopes = slopes / batch.times.sum()
        of_rows = slopes[:, :, None] * batch.columns[:, None, :]
        gradient = of_rows.sum(0)
        squares.columns.add_(gradient.square())
        scale = RATE / at.columns.shape[1] ** 0.5 / squares.columns.sqrt()
        at.columns.add_(scale * gradient)
        of_columns.index_add_(0, batch.party, of_rows * scale)
        there, place = batch.there
        summands = slopes.float()[bags.row] * bags.share[:, None]
        gradient = torch.zeros(len(there), slopes.shape[1]).index_add_(0, place, summands)
        squares.grams[there] += gradient.square()
        scale = RATE / squares.grams[there].sqrt()
        at.grams[there] += scale * gradient
        places = batch.party[bags.row] * (self.seen.count + 1) + self.seen.known[bags.buckets]
        of_grams.index_add_(0, places, summands * scale[place])
        return slopes

    def _parts(self, of_columns: Tensor, of_grams: Tensor) -> Iterator[Tensor]:
        for columns, grams in zip(of_columns, of_grams, strict=True):
            yield Weights(columns, grams).scores(self.seen.columns, self.seen.bags)


def row_gains(rows: TextRows, slopes: Tensor, squares: Weights, seen: Seen, towards: Tensor) -> Tensor:
    """What each row's part of passes changes along a direction of the scores seen [rows seen, outputs], to first order
    and with the squares that there are in the end."""
    columns = towards.T @ seen.columns * RATE / squares.columns.shape[1] ** 0.5 / squares.columns.sqrt()
    grams = torch.zeros(seen.count + 1, towards.shape[1])
    summands = towards.float()[seen.bags.row] * seen.bags.share[:, None]
    grams.index_add_(0, seen.bags.buckets, summands)
    whole = RATE / squares.grams.sqrt() * grams[seen.known]
    values: Tensor = (slopes * Weights(columns, whole).scores(rows.columns, rows.bags)).sum(1)
    return values


def begun(problem: LinearProblem) -> tuple[Weights, Weights]:
    """Weights and their squares before any row."""
    at, squares = (Weights.zero(problem.outputs, problem.width) for _ in range(2))
    return at, Weights(squares.columns + FIRST, squares.grams + FIRST)


def joined(parties: Sequence[TextRows]) -> TextRows:
    """The rows of several parties, one after the other."""
    return TextRows(
        torch.cat([rows.columns for rows in parties]),
        Bags(torch.cat([rows.bags.buckets for rows in parties]), torch.cat([rows.bags.sizes for rows in parties])),
        torch.cat([rows.y for rows in parties]),
        torch.cat([rows.times for rows in parties]),
        torch.cat([rows.party for rows in parties]),
    )
