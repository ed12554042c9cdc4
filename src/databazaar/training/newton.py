"""Newton's method as a learner: an answer is some of a provider's rows, and a round is one step on all of them.

learning/linear.py states the problem and solves it: the move is a sum of parts, one a provider, one of the buyer's
training rows and one that belongs to nobody. What stays of the rows is the memory: sums of their squares and products.
Predictions are linear in parameters, and so are their parts: gains are those of training/predictions.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from databazaar.engines.protocol import DIVERGES, NO_UTILITY
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.linear import LinearProblem, Quadratic, Rows, Step
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.models import form_of
from databazaar.learning.torch_state import one_thread
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.parties import Consumer
from databazaar.row_values import JudgedRows
from databazaar.training.parameters import Parameters, vector_of
from databazaar.training.predictions import gains_in_predictions, judged, output_scorer, own_rows, row_losses, slopes
from databazaar.training.protocol import Learned, Lesson, Memory, Model

if TYPE_CHECKING:
    from databazaar.learners import Market, Newton

HESSIAN, LINEAR = "learner.hessian", "learner.linear"
"""S [blocks, features + 1, features + 1] and b [outputs, features + 1], by their names in a snapshot."""
SOLVED = (squared_error, cross_entropy, binary_cross_entropy)
"""Losses of linear outputs whose Hessians are known."""
RIDGES = tuple(10.0**power for power in range(4, -4, -1))
"""Those that are tried on the buyer's rows, the strongest first."""
FOLDS, ROUGHLY = 5, 0.01
"""Parts of those rows, and how closely each fit is solved."""
WIDE, MOST_NUMBERS = 2**20, 2**23
"""Numbers of S: from so many on a single part is judged by, because fits take seconds; and the most that there may be,
because a snapshot holds them in every round."""


@dataclass(frozen=True, eq=False)
class NewtonTraining:
    """`scorer` judges scores of the hold-out."""

    rule: Newton
    consumer: Consumer
    scorer: OutputScorer
    problem: LinearProblem
    device: torch.device

    @classmethod
    def of(cls, rule: Newton, market: Market) -> NewtonTraining:
        consumer = market.consumer
        scorer = output_scorer(consumer, rule.kind)  # refuses a consumer without a hold-out
        return cls(rule, consumer, scorer, problem_of(rule, consumer), market.device)

    def restored(self, stored: NDArray[Any]) -> Model:
        return Parameters(torch.from_numpy(stored).to(self.device))

    def init(self, model: Model) -> Memory:
        return _kept(self.problem.nothing)

    def question(self, model: Model) -> Tensor:
        return torch.empty(0)

    def score(self, model: Model) -> Scores:
        with one_thread():
            return judged(self.scorer, self._scores(model, self._holdout)[None])

    def outputs(self, model: Model, x: Inputs) -> NDArray[np.float64]:
        return self._scores(model, _features(x))

    def own_rows_alone(self) -> Model:
        start = _matrix(self.problem, self.consumer.untrained_parameters())
        with one_thread():
            return self._model(self.problem.fitted(start, _table(own_rows(self.consumer))))

    def learn(self, lesson: Lesson) -> Learned:
        with one_thread():
            return self._learned(lesson)

    def _learned(self, lesson: Lesson) -> Learned:
        draws, failures = lesson.drawn.draws.tolist(), dict(lesson.replies.failures)
        tables = {i: _table(rows) for i, rows in lesson.replies.rows.items() if i not in failures}
        failures |= {i: NO_UTILITY for i, rows in tables.items() if not all(map(_finite, rows))}
        counted = [i for i in lesson.drawn.asked if i not in failures and i not in lesson.left_out]
        own = [] if self.consumer.train is None else [(_table(self.consumer.train), 1.0)]
        model, memory, scores, gained = lesson.model, lesson.memory, lesson.unchanged, dict[int, float]()
        rows = dict[int, JudgedRows]()
        before = Quadratic(memory[HESSIAN].cpu(), memory[LINEAR].cpu())
        while counted:
            at, parties = self._at(lesson.model), [(tables[i], float(draws.count(i))) for i in counted]
            step = self.problem.step(at, before, self.rule.decay, parties + own)
            parts, after = step.parts, step.after
            reached = self._model(at + parts.sum(0))
            found, numbers = self.score(reached), (vector_of(reached), after.hessian, after.linear)
            if np.isfinite(found.utility[0]) and all(map(_finite, numbers)):
                moves = torch.einsum("np,kcp->knc", self._holdout, parts).numpy()
                old = self._scores(lesson.model, self._holdout)
                gained = gains_in_predictions(self.scorer, old, moves, lesson, counted)
                model, memory, scores = reached, _kept(after), found
                if lesson.values_rows:
                    middle = self._slopes(old + moves.sum(0) / 2)
                    rows = {i: self._judged_rows(at, step, tables[i], middle) for i in counted}
                break
            lengths = torch.nan_to_num(parts[: len(counted)].flatten(1).norm(dim=1), nan=torch.inf)
            failures[counted.pop(int(lengths.argmax()))] = DIVERGES  # the longest, as in training/averaging.py
        gains = {i: None if i in failures else gained.get(i, 0.0) for i in lesson.drawn.asked}
        return Learned(gains, failures, model, memory, scores, rows)

    def _slopes(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative of the utility where the hold-out has these scores."""
        assert self.consumer.holdout is not None
        gradients, _ = self.problem.slopes(torch.from_numpy(scores), self.consumer.holdout[1].cpu().double())
        return slopes(self.consumer, scores, gradients.numpy())

    def _judged_rows(self, at: Tensor, step: Step, rows: Rows, slope: NDArray[np.float64]) -> JudgedRows:
        """Where the utility has this derivative by the hold-out's scores [rows, outputs]."""
        gains = self.problem.row_values(at, step, rows, torch.from_numpy(slope).T @ self._holdout)
        return JudgedRows(gains.numpy(), row_losses(self.consumer, (rows[0] @ at.T).numpy(), rows[1]))

    def _scores(self, model: Model, x: Tensor) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = (x @ self._at(model).T).numpy()
        return scores

    def _at(self, model: Model) -> Tensor:
        return _matrix(self.problem, vector_of(model))

    def _model(self, at: Tensor) -> Model:
        return Parameters(_vector(at).to(self.device))

    @cached_property
    def _holdout(self) -> Tensor:
        assert self.consumer.holdout is not None
        return _features(self.consumer.holdout[0])


def begun(rule: Newton, consumer: Consumer) -> Model:
    """The model as it was brought; where the consumer has training rows, the one that fits them."""
    start = consumer.untrained_parameters()
    if consumer.train is None:
        _posed(rule, consumer)  # refuses what it does not solve
        return Parameters(start)
    problem = problem_of(rule, consumer)
    with one_thread():
        return Parameters(_vector(problem.fitted(_matrix(problem, start), _table(consumer.train))))


def problem_of(rule: Newton, consumer: Consumer) -> LinearProblem:
    """The problem with the ridge that the consumer's rows ask for, where none is given."""
    problem = _posed(rule, consumer)
    if rule.ridge is not None:
        return problem
    with one_thread():
        return with_ridge(problem, _table(own_rows(consumer)))


def _posed(rule: Newton, consumer: Consumer) -> LinearProblem:
    """The problem with the ridge that is given, or the strongest."""
    form = form_of(consumer.model) if isinstance(consumer.model, nn.Module) else None
    solved = form is not None and form.kind in rule.models and consumer.parameter_count == form.parameter_count
    if not solved or form is None or consumer.task.loss not in SOLVED:
        raise BazaarError(
            f'learner "{rule.kind}" solves model "linear" with squared-error and "logistic" with cross-entropy: use '
            'one of them, or another learner, such as "averaging"'
        )
    width = prod(form.inputs) + 1
    problem = LinearProblem(consumer.task.loss, form.outputs, width, rule.ridge or RIDGES[0])
    if problem.blocks * width**2 > MOST_NUMBERS:
        raise BazaarError(
            f'learner "{rule.kind}" keeps the products of all pairs of {width - 1:,} features, which are too '
            'many: use learner "in-run"'
        )
    return problem


def with_ridge(problem: LinearProblem, rows: Rows, cautious: bool = False) -> LinearProblem:
    """The ridge whose fits to all but a part of the rows are best on that part; of equals the strongest, or, with more
    caution, the strongest that is worse by no more than a standard error."""
    x, y = rows
    if len(y) < 2:
        return problem
    fold = torch.empty(len(y), dtype=torch.int64)
    fold[torch.argsort(y.reshape(len(y), -1)[:, 0], stable=True)] = torch.arange(len(y)) % FOLDS
    wide = problem.blocks * problem.width**2 > WIDE
    parts = [fold == number for number in range(1 if wide else min(FOLDS, len(y)))]
    starts, losses = [problem.nothing.linear for _ in parts], list[list[float]]()
    for ridge in RIDGES:
        tried = replace(problem, ridge=ridge)
        starts = [tried.fitted(at, (x[~part], y[~part]), ROUGHLY) for at, part in zip(starts, parts, strict=True)]
        losses.append([tried.mean_loss(at, (x[part], y[part])) for at, part in zip(starts, parts, strict=True)])
    table = np.nan_to_num(losses, nan=np.inf)
    best = int(np.argmin(table.mean(1)))
    if cautious:
        most = table[best].mean() + table[best].std() / np.sqrt(len(parts))
        best = int(np.argmax(table.mean(1) <= most))
    return replace(problem, ridge=RIDGES[best])


def _kept(rows: Quadratic) -> Memory:
    return {HESSIAN: rows.hessian, LINEAR: rows.linear}


def _matrix(problem: LinearProblem, vector: Tensor) -> Tensor:
    """The model's weights and intercepts [outputs, features + 1], which lie one after the other in its vector."""
    flat = vector.detach().cpu().double()
    return torch.cat([flat[: -problem.outputs].view(problem.outputs, -1), flat[-problem.outputs :, None]], 1)


def _vector(matrix: Tensor) -> Tensor:
    return torch.cat([matrix[:, :-1].reshape(-1), matrix[:, -1]]).float()


def _features(x: Inputs) -> Tensor:
    if not isinstance(x, Tensor):
        raise BazaarError("a linear model takes no named inputs: give x as one array")
    flat = x.cpu().double().flatten(1)
    return torch.cat([flat, flat.new_ones(len(flat), 1)], 1)


def _table(rows: Examples) -> Rows:
    return _features(rows[0]), rows[1].cpu().double()


def _finite(numbers: Tensor) -> bool:
    return bool(torch.isfinite(numbers).all())
