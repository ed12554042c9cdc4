"""Blending: a linear model and trees learn from the same rows, and the buyer's rows say how much each counts.

With scores a of the linear model and b of the trees, the blend's are (1 − w) a + w b, where

    w* = argmin_{0 ≤ w ≤ 1}  mean loss of (1 − w) a + w b on the hold-out,

a convex problem in one number, which is solved anew after every round, and w is the nearest to ½ of a
few steps between ½ and w* whose loss is, beyond half a standard error, no higher than that at w*: on few rows, a model
that is sure of itself looks better than it is, and the mean of two is safe. Both moves are sums of parts in predictions
(training/boosting.py, learning/linear.py), so the blend's is: party i's part is (1 − w) a_i + w b_i, at the w that the
round began with, and gains are those of training/predictions.py. What a change of w brings is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.learning.blend import Blend
from databazaar.learning.design import Design
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.linear import LinearProblem, Quadratic, Rows, Step
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.torch_state import one_thread
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.parties import Consumer
from databazaar.row_values import JudgedRows
from databazaar.training.boosting import BoostingTraining, features, refuse_large_trees, untrained
from databazaar.training.newton import HESSIAN, LINEAR, with_ridge
from databazaar.training.predictions import (
    gains_in_predictions,
    judged,
    output_scorer,
    own_rows,
    row_losses,
)
from databazaar.training.protocol import Learned, Lesson, Memory, Model

if TYPE_CHECKING:
    from databazaar.learners import Blending, Market

Numbers = NDArray[np.float64]
SECTIONS = 24
"""Golden sections of the interval in which the weight lies."""
STEPS, CLOSE = 10, 0.5
"""From ½ to the best weight; and the standard errors by which a loss may be higher."""


@dataclass(frozen=True, eq=False)
class BlendTraining:
    """`trees` grows trees, `problem` is the linear model's. `scorer` judges scores of the hold-out."""

    rule: Blending
    consumer: Consumer
    scorer: OutputScorer
    trees: BoostingTraining
    problem: LinearProblem

    @classmethod
    def of(cls, rule: Blending, market: Market) -> BlendTraining:
        consumer = market.consumer
        trees, scorer = BoostingTraining.of(rule, market), output_scorer(consumer, rule.kind)
        return cls(rule, consumer, scorer, trees, problem_of(rule, consumer, untrained(consumer)))

    def restored(self, stored: NDArray[Any]) -> Model:
        return Blend.restored(stored)

    def init(self, model: Model) -> Memory:
        nothing = self.problem.nothing
        return {HESSIAN: nothing.hessian, LINEAR: nothing.linear}

    def question(self, model: Model) -> Tensor:
        return torch.empty(0)

    def score(self, model: Model) -> Scores:
        blend = _blend(model)
        return judged(self.scorer, blend.mixed(*self._holdout_scores(blend))[None])

    def outputs(self, model: Model, x: Inputs) -> Numbers:
        return _blend(model).outputs(features(x))

    def learn(self, lesson: Lesson) -> Learned:
        blend, failures = _blend(lesson.model), dict(lesson.replies.failures)
        counted = [i for i in lesson.drawn.asked if i not in failures and i not in lesson.left_out]
        gains: dict[int, float | None] = {i: None if i in failures else 0.0 for i in lesson.drawn.asked}
        nothing = Learned(gains, failures, blend, lesson.memory, lesson.unchanged)
        if not counted:
            return nothing
        before = self._holdout_scores(blend)
        step, memory, linear_parts = self._linear_move(blend, lesson, counted)
        linear = blend.linear if step is None else blend.linear + step.parts.sum(0).numpy()
        move = self.trees.moved(blend.trees, lesson, counted)
        trees, tree_parts = move.after, move.parts
        missing = len(linear_parts) - len(tree_parts)  # the ridge's part, which trees do not have
        tree_parts = np.concatenate([tree_parts, np.zeros((missing, *tree_parts.shape[1:]))])
        parts = blend.mixed(linear_parts, tree_parts)
        gained = gains_in_predictions(self.scorer, blend.mixed(*before), parts, lesson, counted)
        after = self._weighed(replace(blend, linear=linear, trees=trees))
        scores = self.score(after)
        if not np.isfinite(scores.utility[0]):
            return nothing
        rows = dict[int, JudgedRows]()
        if lesson.values_rows:
            middle = self.trees.slopes(trees, blend.mixed(*before) + parts.sum(0) / 2)
            gained_by_trees = self.trees.row_gains(move, middle), move.scores
            for i, by_trees, scores_of_trees in zip(counted, *gained_by_trees, strict=False):  # the buyer's come last
                table = _table(blend.design, lesson.replies.rows[i])
                rows[i] = self._judged_rows(blend, step, table, middle, by_trees, scores_of_trees)
        return Learned({**gains, **gained}, failures, after, memory, scores, rows)

    def own_rows_alone(self) -> Blend:
        """Each as it is alone, in the shares that are best on rows kept apart."""
        start, (train, judge), both = untrained(self.consumer), self.trees.divided(), own_rows(self.consumer)
        rounds = self.trees.rounds_alone(start, train, judge)
        tried, whole = (
            Blend(self._design, self._fitted(rows), self.trees.alone(start, rows, rounds), 0.0)
            for rows in (train, both)
        )
        x, y = features(judge[0]), judge[1].cpu().double().numpy()
        return replace(whole, weight=best_weight(start, tried.linear_scores(x), tried.trees.outputs(x), y))

    def _judged_rows(
        self, blend: Blend, step: Step | None, rows: Rows, slope: Numbers, by_trees: Numbers, scores_of_trees: Numbers
    ) -> JudgedRows:
        """A provider's rows, of which trees alone would gain so much, at these scores of theirs."""
        at = torch.from_numpy(blend.linear)
        scores = blend.mixed((rows[0] @ at.T).numpy(), scores_of_trees)
        along = torch.from_numpy(slope).T @ self._holdout_columns
        linear = np.zeros(len(by_trees))
        if step is not None:
            with one_thread():
                linear = self.problem.row_values(at, step, rows, along).numpy()
        return JudgedRows(blend.mixed(linear, by_trees), row_losses(self.consumer, scores, rows[1]))

    def _linear_move(self, blend: Blend, lesson: Lesson, counted: Sequence[int]) -> tuple[Step | None, Memory, Numbers]:
        """The linear model's step, what it remembers, and the parts in predictions; no step where it would be no
        numbers."""
        draws = lesson.drawn.draws.tolist()
        parties = [(_table(blend.design, lesson.replies.rows[i]), float(draws.count(i))) for i in counted]
        if self.consumer.train is not None:
            parties.append((_table(blend.design, self.consumer.train), 1.0))
        at, before = torch.from_numpy(blend.linear), Quadratic(lesson.memory[HESSIAN], lesson.memory[LINEAR])
        with one_thread():
            step = self.problem.step(at, before, self.rule.linear.decay, parties)
            parts, after = step.parts, step.after
            moves = torch.einsum("np,kcp->knc", self._holdout_columns, parts).numpy()
        if not all(bool(torch.isfinite(each).all()) for each in (parts, after.hessian, after.linear)):
            return None, lesson.memory, np.zeros_like(moves)
        return step, {HESSIAN: after.hessian, LINEAR: after.linear}, moves

    def _weighed(self, blend: Blend) -> Blend:
        weight = best_weight(blend.trees, *self._holdout_scores(blend), self._targets)
        return replace(blend, weight=weight)

    def _holdout_scores(self, blend: Blend) -> tuple[Numbers, Numbers]:
        with one_thread():
            linear = (self._holdout_columns @ torch.from_numpy(blend.linear).T).numpy()
        return linear, self.trees.holdout_scores(blend.trees)

    def _fitted(self, rows: Examples) -> Numbers:
        with one_thread():
            return self.problem.fitted(self.problem.nothing.linear, _table(self._design, rows)).numpy()

    @cached_property
    def _design(self) -> Design:
        return design_of(self.consumer)

    @cached_property
    def _holdout_columns(self) -> Tensor:
        return _table(self._design, self._holdout)[0]

    @cached_property
    def _targets(self) -> Numbers:
        return self._holdout[1].cpu().double().numpy()

    @property
    def _holdout(self) -> Examples:
        found: Examples | None = self.consumer.holdout
        assert found is not None
        return found


def begun(rule: Blending, consumer: Consumer) -> Blend:
    """No tree yet, and the linear model of the buyer's training rows."""
    trees, design = untrained(consumer), design_of(consumer)
    refuse_large_trees(rule, trees)
    problem = problem_of(rule, consumer, trees)
    linear = problem.nothing.linear
    linear[:, -1] = torch.from_numpy(trees.start)
    if consumer.train is not None:
        with one_thread():
            linear = problem.fitted(linear, _table(design, consumer.train))
    begun = Blend(design, linear.numpy(), trees, 0.0)
    x, y = features(consumer.holdout[0]), consumer.holdout[1].cpu().double().numpy()
    return replace(begun, weight=best_weight(trees, begun.linear_scores(x), trees.outputs(x), y))


def design_of(consumer: Consumer) -> Design:
    return Design.of(features(own_rows(consumer)[0]), getattr(consumer.model, "categorical", ()))


def problem_of(rule: Blending, consumer: Consumer, trees: Ensemble) -> LinearProblem:
    """The linear model of the same scores, with the ridge that the buyer's rows ask for."""
    kind, design = trees.objective.kind, design_of(consumer)
    loss = {"binary": binary_cross_entropy, "squared": squared_error}.get(kind, cross_entropy)
    problem = LinearProblem(loss, trees.objective.classes, design.width + 1, ridge=1.0)
    with one_thread():
        return with_ridge(problem, _table(design, own_rows(consumer)), cautious=True)


def best_weight(trees: Ensemble, linear: Numbers, grown: Numbers, y: Numbers) -> float:
    """The w of (1 − w) linear + w grown."""

    def losses(weight: float) -> Numbers:
        return trees.objective.loss((1 - weight) * linear + weight * grown, y)

    best = _lowest(lambda weight: float(losses(weight).mean()))
    for step in range(STEPS):
        weight = 0.5 + (best - 0.5) * step / STEPS
        more = losses(weight) - losses(best)
        if more.mean() <= CLOSE * more.std() / len(more) ** 0.5:
            return weight
    return best


def _lowest(loss: Callable[[float], float]) -> float:
    """Where a convex function on [0, 1] is lowest, by golden sections; of equals the least."""
    low, high, share = 0.0, 1.0, (5**0.5 - 1) / 2
    for _ in range(SECTIONS):
        left, right = high - share * (high - low), low + share * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return min((0.0, 1.0, (low + high) / 2), key=loss)


def _table(design: Design, rows: Examples) -> Rows:
    columns = torch.from_numpy(design(features(rows[0])))
    return torch.cat([columns, columns.new_ones(len(columns), 1)], 1), rows[1].cpu().double()


def _blend(model: Model) -> Blend:
    assert isinstance(model, Blend)
    return model
