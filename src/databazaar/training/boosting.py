"""Boosting: a round's move is a tree, and the tree is a sum of parts, one a provider, in predictions.

The rows of all drawn providers, and the buyer's own, give gradients at the current scores; one tree a class is grown on
them as if they lay in one place, from sums by feature and bin (learning/trees). A leaf's value is

    rate · Σ_i G_i / (Σ_i H_i + l2)

over the parties i whose rows are in the leaf, G_i and H_i being sums of their negative gradients and hessians. So party
i's part of the move is rate · G_i / (Σ H + l2) in every leaf, and the parts add up to the tree. A provider that is
drawn several times counts its rows so many times.

Gains are those of training/predictions.py. The structure of the tree is that of all parties together, in every
coalition.

Scores of rows that were looked at before are kept, and what later trees add is added when a provider is asked again.
That is only faster: the numbers are the same to the bit, because they are added in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.losses import binary_cross_entropy, squared_error
from databazaar.learning.trees.bins import Binned, Bins, columns_of
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid, LocalRows
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Grown, part_predictions
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.models import Columns, Trees
from databazaar.parties import Consumer
from databazaar.training.predictions import gains_in_predictions, judged, output_scorer, own_rows
from databazaar.training.protocol import Learned, Lesson, Memory, Model

if TYPE_CHECKING:
    from databazaar.learners import Boosting, Market

Numbers = NDArray[np.float64]
PATIENCE = 30
"""On own rows alone, boosting ends after so many trees that were none the better."""
MOST_ALONE = 300
"""Trees on own rows alone at the most."""
FASTEST, SLOWEST, REACH = 0.3, 0.05, 12.0
"""A rate that is not given is such that it adds up to `REACH` over the rounds, within these bounds."""


def untrained(consumer: Consumer) -> Ensemble:
    """No tree yet: the bins, and the one answer that fits the buyer's rows best."""
    model, rows = consumer.model, own_rows(consumer)
    if not isinstance(model, Columns) or consumer.form is None:
        raise BazaarError('learner "boosting" grows trees: use model "trees", or another learner')
    x, y = _table(rows)
    outputs = consumer.form.outputs
    if consumer.loss is binary_cross_entropy:
        objective = Objective("binary")
    else:
        objective = Objective("squared") if consumer.loss is squared_error else Objective("multiclass", outputs)
    bins = Bins.of(x, categorical=[place for place in model.categorical if place < x.shape[1]])
    return Ensemble(bins, objective, objective.start(y))


@dataclass
class _Party:
    """The rows of one table that were looked at, binned, with their scores after `trees` rounds each."""

    binned: Binned
    scores: Numbers
    trees: NDArray[np.int64]

    @classmethod
    def of(cls, ensemble: Ensemble) -> _Party:
        features, classes = ensemble.bins.features, ensemble.objective.classes
        return cls(np.empty((0, features), np.uint8), np.empty((0, classes)), np.empty(0, np.int64))

    def scored(self, ensemble: Ensemble, x: Numbers, places: NDArray[np.int64]) -> tuple[Binned, Numbers]:
        """Bins and scores of rows x that lie in these places of the table."""
        missing = int(places.max(initial=-1)) + 1 - len(self.trees)
        if missing > 0:
            self.binned = np.concatenate([self.binned, np.empty((missing, self.binned.shape[1]), np.uint8)])
            self.scores = np.concatenate([self.scores, np.tile(ensemble.start, (missing, 1))])
            self.trees = np.concatenate([self.trees, np.full(missing, -1)])
        new = self.trees[places] < 0
        if new.any():
            self.binned[places[new]] = ensemble.bins.apply(x[new])
            self.trees[places[new]] = 0
        for since in np.unique(self.trees[places]).tolist():
            behind = places[self.trees[places] == since]
            scores = self.scores[behind]
            ensemble.add_to(scores, self.binned[behind], since)
            self.scores[behind] = scores
        self.trees[places] = len(ensemble.rounds)
        return self.binned[places], self.scores[places]


@dataclass(frozen=True, eq=False)
class BoostingTraining:
    """`scorer` judges scores of the hold-out."""

    rule: Boosting
    consumer: Consumer
    scorer: OutputScorer
    rate: float
    _parties: dict[int, _Party] = field(default_factory=dict)
    _last: list[Ensemble] = field(default_factory=list)
    """What is kept of rows is of this ensemble, or of one with fewer rounds."""

    @classmethod
    def of(cls, rule: Boosting, market: Market) -> BoostingTraining:
        consumer = market.consumer
        scorer = output_scorer(consumer, rule.kind)
        rate = rule.rate or min(FASTEST, max(SLOWEST, REACH / max(1, market.rounds)))
        return cls(rule, consumer, scorer, rate)

    def restored(self, stored: NDArray[Any]) -> Model:
        return Ensemble.restored(stored)

    def init(self, model: Model) -> Memory:
        return {}

    def question(self, model: Model) -> Tensor:
        return torch.empty(0)

    def score(self, model: Model) -> Scores:
        return judged(self.scorer, self.holdout_scores(_grown_model(model))[None])

    def outputs(self, model: Model, x: Inputs) -> NDArray[np.float64]:
        ensemble = _grown_model(model)
        return ensemble.outputs(features(x))

    def learn(self, lesson: Lesson) -> Learned:
        ensemble = _grown_model(lesson.model)
        answered = [i for i in lesson.drawn.asked if i not in lesson.replies.failures]
        counted = [i for i in answered if i not in lesson.left_out]
        gains: dict[int, float | None] = {i: 0.0 if i in answered else None for i in lesson.drawn.asked}
        failures = dict(lesson.replies.failures)
        if not counted:
            return Learned(gains, failures, ensemble, lesson.memory, lesson.unchanged)
        before = self.holdout_scores(ensemble)
        after, parts = self.moved(ensemble, lesson, counted)
        gains |= gains_in_predictions(self.scorer, before, parts, lesson, counted)
        scores = self.score(after)
        if not np.isfinite(scores.utility[0]):
            return Learned(gains, failures, ensemble, lesson.memory, lesson.unchanged)
        return Learned(gains, failures, after, lesson.memory, scores)

    def moved(self, ensemble: Ensemble, lesson: Lesson, counted: Sequence[int]) -> tuple[Ensemble, Numbers]:
        """The ensemble after a round, and the parts of its move on the hold-out [parties, rows, classes]: those of the
        providers that count, and the buyer's where it has training rows."""
        draws = lesson.drawn.draws.tolist()
        grown = self._grown(ensemble, lesson, counted, [draws.count(i) for i in counted])
        parts = part_predictions(grown, self._kept(HOLDOUT, ensemble, self._holdout)[0])
        return ensemble.appended([each.tree for each in grown]), parts

    def holdout_scores(self, ensemble: Ensemble) -> Numbers:
        return self._kept(HOLDOUT, ensemble, self._holdout)[1]

    def own_rows_alone(self) -> Ensemble:
        """As many trees as the hold-out likes best, when they are grown on the training rows; then grown on all."""
        begun = untrained(self.consumer)
        return self.alone(begun, own_rows(self.consumer), self.rounds_alone(begun, *self.divided()))

    def divided(self) -> tuple[Examples, Examples]:
        """The consumer's rows to train on, and those to judge by."""
        if self.consumer.train is not None:
            return self.consumer.train, self._holdout
        (x, y), half = self._holdout, len(self._holdout[1]) // 2
        return (x[:half], y[:half]), (x[half:], y[half:])

    def rounds_alone(self, begun: Ensemble, train: Examples, judge: Examples) -> int:
        """How many trees of the training rows judge the others best."""
        (x, y), ensemble = _table(judge), begun
        binned, found, best = begun.bins.apply(x), 0, np.inf
        for number in range(1, MOST_ALONE + 1):
            ensemble = self.alone(ensemble, train, 1)
            loss = float(ensemble.objective.loss(ensemble.scores(binned), y).mean())
            if loss < best:
                best, found = loss, number
            if number - found >= PATIENCE:
                break
        return found

    def alone(self, ensemble: Ensemble, rows: Examples, rounds: int) -> Ensemble:
        """With so many rounds more, of these rows."""
        x, y = _table(rows)
        binned = ensemble.bins.apply(x)
        scores = ensemble.scores(binned)
        for _ in range(rounds):
            grown = self._trees(ensemble, binned, scores, y, np.ones(len(y)), [len(y)])
            ensemble = ensemble.appended([each.tree for each in grown])
            ensemble.add_to(scores, binned, len(ensemble.rounds) - 1)
        return ensemble

    def _grown(self, ensemble: Ensemble, lesson: Lesson, counted: Sequence[int], times: Sequence[int]) -> list[Grown]:
        """The trees of a round; the last party is the buyer, where it has training rows."""
        tables = [(i, lesson.replies.rows[i], lesson.replies.places[i]) for i in counted]
        if self.consumer.train is not None:
            tables.append((OWN, self.consumer.train, np.arange(len(self.consumer.train[1]))))
        looked = [self._kept(i, ensemble, rows, places) for i, rows, places in tables]
        y = np.concatenate([_targets(rows) for _, rows, _ in tables])
        sizes = [len(scores) for _, scores in looked]
        weight = np.repeat([*map(float, times), 1.0][: len(sizes)], sizes)
        binned, scores = (np.concatenate([each[part] for each in looked]) for part in (0, 1))
        return self._trees(ensemble, binned, scores, y, weight, sizes)

    def _trees(
        self, ensemble: Ensemble, binned: Binned, scores: Numbers, y: Numbers, weight: Numbers, sizes: Sequence[int]
    ) -> list[Grown]:
        gradients, hessians = ensemble.objective.gradients(scores, y, weight)
        grid = Grid.of(float(np.abs(gradients).max()), float(hessians.max()), len(y))
        columns, bins = columns_of(binned), ensemble.bins
        return [
            grow(
                LocalRows(columns, gradients[:, place], hessians[:, place], grid, bins.width, sizes),
                self._growth,
                bins.categorical,
            )
            for place in range(ensemble.objective.classes)
        ]

    @cached_property
    def _growth(self) -> Growth:
        model, rule, holdout = self.consumer.model, self.rule, self._holdout[0]
        assert isinstance(holdout, Tensor)
        monotone = [0] * holdout.shape[1]
        for sign, places in ((1, model.rising), (-1, model.falling)) if isinstance(model, Trees) else ():
            for place in places:
                monotone[int(place)] = sign
        return Growth(rate=self.rate, leaves=rule.leaves, min_rows=rule.min_rows, l2=rule.l2, monotone=tuple(monotone))

    def _kept(
        self, party: int, ensemble: Ensemble, rows: Examples, places: NDArray[np.int64] | None = None
    ) -> tuple[Binned, Numbers]:
        """Bins and scores of a party's rows."""
        last = self._last[0] if self._last else None
        if last is None or not _continues(ensemble, last):
            self._parties.clear()
        self._last[:] = [ensemble]
        kept = self._parties.setdefault(party, _Party.of(ensemble))
        return kept.scored(ensemble, features(rows[0]), np.arange(len(rows[1])) if places is None else places)

    @property
    def _holdout(self) -> Examples:
        found: Examples | None = self.consumer.holdout
        assert found is not None
        return found


HOLDOUT, OWN = -1, -2
"""The buyer's rows among the parties."""


def _continues(ensemble: Ensemble, last: Ensemble) -> bool:
    """Whether an ensemble is another with rounds added to it."""
    rounds = len(last.rounds)
    same = ensemble.bins is last.bins and len(ensemble.rounds) >= rounds
    return same and (not rounds or ensemble.rounds[rounds - 1] is last.rounds[-1])


def _grown_model(model: Model) -> Ensemble:
    if not isinstance(model, Ensemble):
        raise BazaarError("this model is no ensemble of trees: use the learner that made it")
    return model


def features(x: Inputs) -> Numbers:
    if not isinstance(x, Tensor):
        raise BazaarError("boosted trees take no named inputs: give x as one array")
    return x.cpu().double().numpy()


def _targets(rows: Examples) -> Numbers:
    return rows[1].cpu().double().numpy()


def _table(rows: Examples) -> tuple[Numbers, Numbers]:
    return features(rows[0]), _targets(rows)
