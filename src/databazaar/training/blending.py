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

from databazaar.learning.blend import Blend, Linear
from databazaar.learning.design import Design
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.linear import LinearProblem
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.torch_state import one_thread
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.models import Auto, Columns
from databazaar.parties import Consumer
from databazaar.randomness import oracle_key
from databazaar.row_values import JudgedRows
from databazaar.training.boosting import (
    OWN,
    BoostingTraining,
    columns_for_trees,
    features,
    refuse_large_trees,
    untrained,
)
from databazaar.training.linear_part import LinearPart, Moved, Party, SolvedPart, TextPart, table
from databazaar.training.newton import with_ridge
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
    """`trees` grows trees, `part` trains the linear model. `scorer` judges scores of the hold-out."""

    rule: Blending
    consumer: Consumer
    scorer: OutputScorer
    trees: BoostingTraining
    part: LinearPart

    @classmethod
    def of(cls, rule: Blending, market: Market) -> BlendTraining:
        consumer = market.consumer
        trees, scorer = BoostingTraining.of(rule, market), output_scorer(consumer, rule.kind)
        return cls(rule, consumer, scorer, trees, linear_part(rule, consumer, untrained(consumer)))

    def restored(self, stored: NDArray[Any]) -> Model:
        return Blend.restored(stored)

    def init(self, model: Model) -> Memory:
        return self.part.init()

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
        moved = self._linear_move(blend, lesson, counted)
        linear_parts = moved.parts
        move = self.trees.moved(blend.trees, lesson, counted)
        trees, tree_parts = move.after, move.parts
        missing = len(linear_parts) - len(tree_parts)  # the ridge's part, which trees do not have
        tree_parts = np.concatenate([tree_parts, np.zeros((missing, *tree_parts.shape[1:]))])
        parts = blend.mixed(linear_parts, tree_parts)
        gained = gains_in_predictions(self.scorer, blend.mixed(*before), parts, lesson, counted)
        after = self._weighed(replace(blend, linear=moved.after, trees=trees))
        scores = self.score(after)
        if not np.isfinite(scores.utility[0]):
            return nothing
        rows = dict[int, JudgedRows]()
        if lesson.values_rows:
            middle = self.trees.slopes(trees, blend.mixed(*before) + parts.sum(0) / 2)
            gained_by_trees = self.trees.row_gains(move, middle), move.scores
            for i, by_trees, scores_of_trees in zip(counted, *gained_by_trees, strict=False):  # the buyer's come last
                with one_thread():
                    by_columns = moved.row_gains(counted.index(i), middle)
                rows[i] = self._judged_rows(blend, lesson.replies.rows[i], by_columns, by_trees, scores_of_trees)
        return Learned({**gains, **gained}, failures, after, moved.memory, scores, rows)

    def own_rows_alone(self) -> Blend:
        """Each as it is alone, in the shares that are best on rows kept apart."""
        start, (train, judge), both = untrained(self.consumer), self.trees.divided(), own_rows(self.consumer)
        rounds = self.trees.rounds_alone(start, train, judge)
        tried, whole = (
            Blend(self.part.design, self._fitted(rows), self.trees.alone(start, rows, rounds), 0.0)
            for rows in (train, both)
        )
        x, y = features(judge[0]), judge[1].cpu().double().numpy()
        grown = tried.trees.outputs(x[:, : start.bins.features])
        return replace(whole, weight=best_weight(start, tried.linear_scores(x), grown, y))

    def _judged_rows(
        self, blend: Blend, rows: Examples, gains: Numbers, by_trees: Numbers, scores_of_trees: Numbers
    ) -> JudgedRows:
        """A provider's rows, of which the linear model alone would gain so much, and trees alone, at their scores."""
        scores = blend.mixed(blend.linear_scores(features(rows[0])), scores_of_trees)
        return JudgedRows(blend.mixed(gains, by_trees), row_losses(self.consumer, scores, rows[1].cpu().double()))

    def _linear_move(self, blend: Blend, lesson: Lesson, counted: Sequence[int]) -> Moved:
        draws, replies = lesson.drawn.draws.tolist(), lesson.replies
        parties = [
            Party(replies.rows[i], float(draws.count(i)), self.trees.aside(i, replies.places[i])) for i in counted
        ]
        if self.consumer.train is not None:
            own = self.consumer.train
            parties.append(Party(own, 1.0, self.trees.aside(OWN, np.arange(len(own[1])))))
        key = oracle_key(self.trees.seed, lesson.round, "passes")
        with one_thread():
            return self.part.moved(blend.linear, lesson.memory, parties, key, self._holdout)

    def _weighed(self, blend: Blend) -> Blend:
        weight = best_weight(blend.trees, *self._holdout_scores(blend), self._targets)
        return replace(blend, weight=weight)

    def _holdout_scores(self, blend: Blend) -> tuple[Numbers, Numbers]:
        with one_thread():
            linear = blend.linear.scores(self._holdout_columns, self._holdout_grams)
        return linear, self.trees.holdout_scores(blend.trees)

    def _fitted(self, rows: Examples) -> Linear:
        with one_thread():
            return self.part.fitted(np.zeros((self.part.problem.outputs, self.part.problem.width)), rows)

    @cached_property
    def _holdout_columns(self) -> Numbers:
        return self.part.design(features(self._holdout[0]))

    @cached_property
    def _holdout_grams(self) -> Numbers:
        model = self.consumer.model
        assert isinstance(model, Columns)
        x = features(self._holdout[0])
        return x[:, columns_for_trees(model, x.shape[1]) :]

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
    trees = untrained(consumer)
    refuse_large_trees(rule, trees)
    part = linear_part(rule, consumer, trees)
    start = np.zeros((part.problem.outputs, part.problem.width))
    start[:, -1] = trees.start
    with one_thread():
        linear = part.unfitted(start) if consumer.train is None else part.fitted(start, consumer.train)
    begun = Blend(part.design, linear, trees, 0.0)
    x, y = features(consumer.holdout[0]), consumer.holdout[1].cpu().double().numpy()
    grown = trees.outputs(x[:, : trees.bins.features])
    return replace(begun, weight=best_weight(trees, begun.linear_scores(x), grown, y))


def linear_part(rule: Blending, consumer: Consumer, trees: Ensemble) -> LinearPart:
    """How the linear model of the same scores learns: with texts by passes, otherwise by Newton's method with the ridge
    that the buyer's rows ask for."""
    kind, model, rows = trees.objective.kind, consumer.model, own_rows(consumer)
    assert isinstance(model, Columns)
    first = trees.bins.features
    design = Design.of(features(rows[0])[:, :first], [place for place in model.categorical if place < first])
    loss = {"binary": binary_cross_entropy, "squared": squared_error}.get(kind, cross_entropy)
    problem = LinearProblem(loss, trees.objective.classes, design.width + 1, ridge=1.0)
    if isinstance(model, Auto) and model.grams:
        return TextPart(design, problem, first)
    with one_thread():
        return SolvedPart(design, with_ridge(problem, table(design, rows), cautious=True), rule.linear.decay)


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


def _blend(model: Model) -> Blend:
    assert isinstance(model, Blend)
    return model
