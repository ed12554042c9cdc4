"""The linear model of a blend: by Newton's method, or by passes over the rows where texts bring many grams.

Both move by a sum of parts in predictions, one a provider that counts; parts of the buyer's training rows and of nobody
follow. A round of passes goes on while the rows that are set aside (training/boosting.py) say so: a pass that does not
lessen their loss is not taken and ends the round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.learning import grams
from databazaar.learning.blend import Linear
from databazaar.learning.design import Design
from databazaar.learning.grams import Bags, Passes, Seen, TextRows, Weights, begun, joined
from databazaar.learning.inputs import Examples
from databazaar.learning.linear import LinearProblem, Quadratic, Rows
from databazaar.randomness import oracle_key, sample_order
from databazaar.training.boosting import ENOUGH, features
from databazaar.training.newton import HESSIAN, LINEAR
from databazaar.training.protocol import Memory

Numbers = NDArray[np.float64]
OF_COLUMNS, OF_GRAMS = "learner.squares.columns", "learner.squares.grams"
"""Sums of squared gradients, by their names in a snapshot."""
MOST_PASSES, ALONE = 8, 20
"""Of a round, where rows are set aside to judge; and over own rows alone."""


@dataclass(frozen=True)
class Party:
    """Rows of a round, how often they count, and which of them are set aside."""

    rows: Examples
    times: float
    aside: NDArray[np.bool_]


class Moved(NamedTuple):
    """The next model, what it remembers, and the parties' parts in scores of the hold-out [parties, rows, outputs],
    with one that is nobody's at the end where there is such. `row_gains` of a party's rows, by its place, is what each
    one's part changes along a direction of these scores [rows, outputs]."""

    after: Linear
    memory: Memory
    parts: Numbers
    row_gains: Callable[[int, Numbers], Numbers]


class LinearPart(Protocol):
    """How the linear model of a blend learns, of the columns that `design` makes."""

    @property
    def design(self) -> Design: ...

    @property
    def problem(self) -> LinearProblem: ...

    def init(self) -> Memory:
        """What is remembered before the first round."""
        ...

    def moved(self, at: Linear, memory: Memory, parties: Sequence[Party], key: int, holdout: Examples) -> Moved:
        """What a round comes to."""
        ...

    def unfitted(self, start: Numbers) -> Linear:
        """With these weights of columns [outputs, columns], and no others."""
        ...

    def fitted(self, start: Numbers, rows: Examples) -> Linear:
        """From there to what fits these rows alone."""
        ...


@dataclass(frozen=True, eq=False)
class SolvedPart:
    """By Newton's method (learning/linear.py)."""

    design: Design
    problem: LinearProblem
    decay: float

    def init(self) -> Memory:
        nothing = self.problem.nothing
        return {HESSIAN: nothing.hessian, LINEAR: nothing.linear}

    def moved(self, at: Linear, memory: Memory, parties: Sequence[Party], key: int, holdout: Examples) -> Moved:
        """Unchanged where it would be no numbers."""
        weights, before = torch.from_numpy(at.columns), Quadratic(memory[HESSIAN], memory[LINEAR])
        tables = [(table(self.design, party.rows), party.times) for party in parties]
        step, columns = self.problem.step(weights, before, self.decay, tables), table(self.design, holdout)[0]
        parts, after = step.parts, step.after
        moves = torch.einsum("np,kcp->knc", columns, parts).numpy()
        if not all(bool(torch.isfinite(each).all()) for each in (parts, after.hessian, after.linear)):
            return Moved(at, memory, np.zeros_like(moves), lambda party, _: np.zeros(len(tables[party][0][1])))

        def row_gains(party: int, towards: Numbers) -> Numbers:
            along = torch.from_numpy(towards).T @ columns
            return self.problem.row_values(weights, step, tables[party][0], along).numpy()

        moved = replace(at, columns=(weights + parts.sum(0)).numpy())
        return Moved(moved, {HESSIAN: after.hessian, LINEAR: after.linear}, moves, row_gains)

    def unfitted(self, start: Numbers) -> Linear:
        return Linear(start)

    def fitted(self, start: Numbers, rows: Examples) -> Linear:
        return Linear(self.problem.fitted(torch.from_numpy(start), table(self.design, rows)).numpy())


@dataclass(frozen=True, eq=False)
class TextPart:
    """By passes over the rows (learning/grams.py). Grams are the features from `first` on."""

    design: Design
    problem: LinearProblem
    first: int

    def init(self) -> Memory:
        return _kept(begun(self.problem)[1])

    def moved(self, at: Linear, memory: Memory, parties: Sequence[Party], key: int, holdout: Examples) -> Moved:
        rows = joined([self._rows(party.rows, party.times, place) for place, party in enumerate(parties)])
        aside = torch.from_numpy(np.concatenate([party.aside for party in parties]))
        judged = int(aside.sum()) >= ENOUGH
        judge, learned = (aside, ~aside) if judged else (aside & False, aside | True)
        places = learned.nonzero()[:, 0]
        order = places[torch.from_numpy(sample_order(key, len(places)))]
        seen = self._seen(holdout)
        passes = Passes(self.problem, rows, order, len(parties), seen)
        judging = rows[judge.nonzero()[:, 0]]
        weights = Weights(torch.from_numpy(at.columns), torch.from_numpy(at.grams))
        squares = Weights(memory[OF_COLUMNS], memory[OF_GRAMS])
        moves, best = np.zeros((len(parties), len(holdout[1]), self.problem.outputs)), self._loss(weights, judging)
        pulled = torch.zeros(len(rows.y), self.problem.outputs, dtype=torch.float64)
        for _ in range(MOST_PASSES if judged else 1):
            tried, theirs = weights.copy(), squares.copy()
            parts, slopes = passes.over(tried, theirs)
            loss = self._loss(tried, judging)
            if not _finite(tried) or (judged and not loss < best):
                break
            weights, squares, best = tried, theirs, loss
            moves += parts.numpy()
            pulled += slopes

        def row_gains(party: int, towards: Numbers) -> Numbers:
            places = (rows.party == party).nonzero()[:, 0]
            found = grams.row_gains(rows[places], pulled[places], squares, seen, torch.from_numpy(towards))
            return found.numpy() / parties[party].times

        return Moved(_linear(weights), _kept(squares), moves, row_gains)

    def unfitted(self, start: Numbers) -> Linear:
        return Linear(start, begun(self.problem)[0].grams.numpy())

    def fitted(self, start: Numbers, rows: Examples) -> Linear:
        """As many passes as are best on one row in five, made over all of them."""
        table = self._rows(rows, 1.0, 0)
        count = len(table.y)
        order = torch.from_numpy(sample_order(oracle_key(0, 0, "own rows"), count))
        judge = table[order[: max(1, count // 5)]]
        losses = [self._loss(at, judge) for at in self._tried(start, table, order[max(1, count // 5) :], ALONE)]
        best = int(np.argmin(losses))
        *_, last = self._tried(start, table, order, best)
        return _linear(last)

    def _tried(self, start: Numbers, rows: TextRows, order: Tensor, most: int) -> list[Weights]:
        """The weights before the first pass and after each."""
        at, squares = begun(self.problem)
        at.columns.copy_(torch.from_numpy(start))
        passes = Passes(self.problem, rows, order, 1, Seen.of(rows.columns[:0], rows.bags[order[:0]], len(at.grams)))
        found = [at.copy()]
        for _ in range(most if len(order) else 0):
            passes.over(at, squares)
            found.append(at.copy())
        return found

    def _loss(self, at: Weights, rows: TextRows) -> float:
        if not len(rows.y):
            return 0.0
        losses = self.problem.loss(at.scores(rows.columns, rows.bags), rows.y)
        return float((losses * rows.times).sum() / rows.times.sum())

    def _rows(self, rows: Examples, times: float, party: int) -> TextRows:
        columns, y = self._columns(rows)
        many = torch.ones(len(y), dtype=torch.float64)
        return TextRows(columns, self._bags(rows), y, times * many, torch.full((len(y),), party))

    def _seen(self, rows: Examples) -> Seen:
        return Seen.of(self._columns(rows)[0], self._bags(rows), self._buckets)

    def _bags(self, rows: Examples) -> Bags:
        x = rows[0]
        assert isinstance(x, Tensor)
        return Bags.of(x[:, self.first :].cpu(), self._buckets)

    def _columns(self, rows: Examples) -> Rows:
        x, y = rows
        assert isinstance(x, Tensor)
        return table(self.design, (x[:, : self.first], y))

    @cached_property
    def _buckets(self) -> int:
        return len(begun(self.problem)[0].grams)


def table(design: Design, rows: Examples) -> Rows:
    """Columns and a one, and targets."""
    columns = torch.from_numpy(design(features(rows[0])))
    return torch.cat([columns, columns.new_ones(len(columns), 1)], 1), rows[1].cpu().double()


def _linear(weights: Weights) -> Linear:
    return Linear(weights.columns.numpy(), weights.grams.numpy())


def _kept(squares: Weights) -> Memory:
    return {OF_COLUMNS: squares.columns, OF_GRAMS: squares.grams}


def _finite(at: Weights) -> bool:
    return bool(torch.isfinite(at.columns).all() and torch.isfinite(at.grams).all())
