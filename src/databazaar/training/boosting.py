"""Boosting: a round's move is a tree, and the tree is a sum of parts, one a provider, in predictions.

The rows of all drawn providers, and the buyer's own, give gradients at the current scores; a tree for each class is
grown on them as if they lay in one place, from sums by feature and bin (learning/trees). A leaf's value is

    rate · Σ_i G_i / (Σ_i H_i + l2)

over the parties i whose rows are in the leaf, G_i and H_i being sums of their negative gradients and hessians. So party
i's part of the move is rate · G_i / (Σ H + l2) in every leaf, and the parts add up to the tree. A provider that is
drawn several times counts its rows so many times.

A round that has more to say grows more trees. One row in twenty is set aside, always the same ones, and no tree is ever
grown on it: by the loss of those in the round the size of its trees is chosen, and a tree that does not lessen it is
not taken and ends the round (the first one always counts). Rows are bought once, and the parts of their trees add up.

Gains are those of training/predictions.py. The structure of the tree is that of all parties together, in every
coalition.

Scores of rows that were looked at before are kept, and what later trees add is added when a provider is asked again.
That is only faster: the numbers are the same to the bit, because they are added in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.data.memory_limits import memory
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.losses import binary_cross_entropy, squared_error
from databazaar.learning.trees.bins import Binned, Bins, columns_of
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid, LocalRows
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Grown, additions, leaves_of
from databazaar.learning.utilities import OutputScorer, Scores
from databazaar.models import Auto, Columns, Trees
from databazaar.parties import Consumer
from databazaar.randomness import one_in, oracle_key
from databazaar.row_values import JudgedRows
from databazaar.training.predictions import gains_in_predictions, judged, output_scorer, own_rows, row_losses, slopes
from databazaar.training.protocol import Learned, Lesson, Memory, Model
from databazaar.training.tree_moves import Addition, Move, Rows

if TYPE_CHECKING:
    from databazaar.learners import Boosting, Market

Numbers = NDArray[np.float64]
PATIENCE = 30
"""On own rows alone, boosting ends after so many trees that were none the better."""
MOST_ALONE = 300
"""Trees on own rows alone at the most."""
LEAVES, ASIDE, ENOUGH = (8, 31, 127), 20, 50
"""The sizes of trees that are tried where none is given, the first of them where few rows are set aside to judge by;
one row in so many is set aside; and how many are enough."""
REACH = 12.0
"""What the rates of all trees add up to over the run, where nothing judges how many there should be."""
USUAL = 31
"""The size of trees on own rows alone."""


def untrained(consumer: Consumer) -> Ensemble:
    """No tree yet: the bins, and the one answer that fits the buyer's rows best."""
    model, rows = consumer.model, own_rows(consumer)
    if not isinstance(model, Columns) or consumer.form is None:
        raise BazaarError('learner "boosting" grows trees: use model "trees", or another learner')
    x, y = _table(rows)
    x = x[:, : columns_for_trees(model, x.shape[1])]
    outputs = consumer.form.outputs
    if consumer.loss is binary_cross_entropy:
        objective = Objective("binary")
    else:
        objective = Objective("squared") if consumer.loss is squared_error else Objective("multiclass", outputs)
    bins = Bins.of(x, categorical=[place for place in model.categorical if place < x.shape[1]])
    return Ensemble(bins, objective, objective.start(y))


def refuse_large_trees(rule: Boosting, begun: Ensemble, room: int | None = None) -> None:
    """While a tree grows, each of its leaves has sums by feature and bin."""
    room, leaves = memory() if room is None else room, rule.leaves or LEAVES[-1]
    size = leaves * 3 * begun.bins.features * begun.bins.width * np.dtype(np.float64).itemsize
    if size > room:
        raise BazaarError(
            f"learner: trees of {leaves:,} leaves over {begun.bins.features:,} features take {size / 2**30:,.1f} GiB "
            f"of the {room / 2**30:,.1f} GiB that this machine has: lower learner.leaves, or name fewer columns in "
            "data.features",
            place="learner.leaves",
        )


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
    """`scorer` judges scores of the hold-out. `unjudged` is how many trees a round has where no rows are set aside."""

    rule: Boosting
    consumer: Consumer
    scorer: OutputScorer
    seed: int
    unjudged: int
    _parties: dict[int, _Party] = field(default_factory=dict)
    _last: list[Ensemble] = field(default_factory=list)
    """What is kept of rows is of this ensemble, or of one with fewer rounds."""

    @classmethod
    def of(cls, rule: Boosting, market: Market) -> BoostingTraining:
        consumer = market.consumer
        scorer = output_scorer(consumer, rule.kind)
        unjudged = min(rule.trees, max(1, round(REACH / (rule.rate * market.rounds))))
        return cls(rule, consumer, scorer, market.seed, unjudged)

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
        return ensemble.outputs(features(x)[:, : ensemble.bins.features])

    def learn(self, lesson: Lesson) -> Learned:
        ensemble = _grown_model(lesson.model)
        answered = [i for i in lesson.drawn.asked if i not in lesson.replies.failures]
        counted = [i for i in answered if i not in lesson.left_out]
        gains: dict[int, float | None] = {i: 0.0 if i in answered else None for i in lesson.drawn.asked}
        failures = dict(lesson.replies.failures)
        if not counted:
            return Learned(gains, failures, ensemble, lesson.memory, lesson.unchanged)
        before = self.holdout_scores(ensemble)
        move = self.moved(ensemble, lesson, counted)
        gains |= gains_in_predictions(self.scorer, before, move.parts, lesson, counted)
        scores, rows = self.score(move.after), dict[int, JudgedRows]()
        if not np.isfinite(scores.utility[0]):
            return Learned(gains, failures, ensemble, lesson.memory, lesson.unchanged)
        if lesson.values_rows:
            each = self.row_gains(move, self.slopes(ensemble, before + move.parts.sum(0) / 2))
            known = zip(counted, each, move.scores, strict=False)  # the buyer's rows come last
            for i, gained, at in known:
                rows[i] = JudgedRows(gained, row_losses(self.consumer, at, lesson.replies.rows[i][1]))
        return Learned(gains, failures, move.after, lesson.memory, scores, rows)

    def slopes(self, ensemble: Ensemble, scores: Numbers) -> Numbers:
        """The derivative of the utility where the hold-out has these scores."""
        return slopes(self.consumer, scores, ensemble.objective.gradients(scores, _targets(self._holdout))[0])

    def row_gains(self, move: Move, slope: Numbers) -> list[Numbers]:
        return move.row_gains(slope, self._growth)

    def moved(self, ensemble: Ensemble, lesson: Lesson, counted: Sequence[int]) -> Move:
        rows, holdout = self._rows(ensemble, lesson, counted), self._kept(HOLDOUT, ensemble, self._holdout)[0]
        judged_by_rows = int(rows.aside.sum()) >= ENOUGH and (self.rule.leaves is None or self.rule.trees > 1)
        aside = rows.aside if judged_by_rows else np.zeros(len(rows.y), dtype=bool)
        choices = (self.rule.leaves,) if self.rule.leaves else LEAVES if judged_by_rows else LEAVES[:1]
        parts = np.zeros((len(rows.sizes), len(holdout), ensemble.objective.classes))
        added = list[Addition]()
        for number in range(self.rule.trees if judged_by_rows else self.unjudged):
            grown_on = rows.at(~aside)
            tried = [self._trees(ensemble, grown_on, leaves) for leaves in choices]
            gained = [_gained(ensemble.objective, rows.at(aside), grown) for grown in tried]
            best = int(np.argmax(gained))
            choices = (choices[best],)
            if judged_by_rows and number and gained[best] <= 0:
                break
            added.append(Addition.of(rows, tried[best], holdout))
            rows = replace(rows, scores=added[-1].scores)
            parts += added[-1].parts
            ensemble = ensemble.appended([each.tree for each in tried[best]])
        return Move(ensemble, parts, added, aside)

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
        x, y = _table(judge, begun)
        binned, found, best = begun.bins.apply(x), 0, np.inf
        scores = begun.scores(binned)
        for number, ensemble in enumerate(islice(self._growing_alone(begun, train), 1, MOST_ALONE + 1), 1):
            ensemble.add_to(scores, binned, len(ensemble.rounds) - 1)
            loss = float(ensemble.objective.loss(scores, y).mean())
            if loss < best:
                best, found = loss, number
            if number - found >= PATIENCE:
                break
        return found

    def alone(self, ensemble: Ensemble, rows: Examples, rounds: int) -> Ensemble:
        """With so many rounds more, of these rows."""
        return next(islice(self._growing_alone(ensemble, rows), rounds, None))

    def _growing_alone(self, ensemble: Ensemble, rows: Examples) -> Iterator[Ensemble]:
        """With no round more of these rows, with one, and so on."""
        yield ensemble
        x, y = _table(rows, ensemble)
        binned = ensemble.bins.apply(x)
        scores = ensemble.scores(binned)
        while True:
            rows_alone = Rows(binned, scores, y, np.ones(len(y)), np.zeros(len(y), dtype=bool), [len(y)], 1)
            grown = self._trees(ensemble, rows_alone, self.rule.leaves or USUAL)
            ensemble = ensemble.appended([each.tree for each in grown])
            ensemble.add_to(scores, binned, len(ensemble.rounds) - 1)
            yield ensemble

    def _rows(self, ensemble: Ensemble, lesson: Lesson, counted: Sequence[int]) -> Rows:
        """The rows of a round; the last party is the buyer, where it has training rows."""
        draws = lesson.drawn.draws.tolist()
        tables = [(i, lesson.replies.rows[i], lesson.replies.places[i]) for i in counted]
        if self.consumer.train is not None:
            tables.append((OWN, self.consumer.train, np.arange(len(self.consumer.train[1]))))
        looked = [self._kept(i, ensemble, rows, places) for i, rows, places in tables]
        y = np.concatenate([_targets(rows) for _, rows, _ in tables])
        sizes = [len(scores) for _, scores in looked]
        weight = np.repeat([*(float(draws.count(i)) for i in counted), 1.0][: len(sizes)], sizes)
        binned, scores = (np.concatenate([each[part] for each in looked]) for part in (0, 1))
        aside = np.concatenate([self.aside(i, places) for i, _, places in tables])
        return Rows(binned, scores, y, weight, aside, sizes, len(counted))

    def aside(self, party: int, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows of a party's table no model ever learns from: they judge."""
        return one_in(ASIDE, oracle_key(self.seed, 0, "set aside") + party, places)

    def _trees(self, ensemble: Ensemble, rows: Rows, leaves: int) -> list[Grown]:
        """One a class."""
        gradients, hessians = ensemble.objective.gradients(rows.scores, rows.y, rows.weight)
        grid = Grid.of(float(np.abs(gradients).max()), float(hessians.max()), len(rows.y))
        columns, bins, growth = columns_of(rows.binned), ensemble.bins, replace(self._growth, leaves=leaves)
        bought = sum(rows.sizes[: rows.counted])
        return [
            grow(
                LocalRows(columns, gradients[:, place], hessians[:, place], grid, bins.width, rows.sizes, bought),
                growth,
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
        return Growth(rate=rule.rate, min_rows=rule.min_rows, l2=rule.l2, monotone=tuple(monotone))

    def _kept(
        self, party: int, ensemble: Ensemble, rows: Examples, places: NDArray[np.int64] | None = None
    ) -> tuple[Binned, Numbers]:
        """Bins and scores of a party's rows."""
        last = self._last[0] if self._last else None
        if last is None or not _continues(ensemble, last):
            self._parties.clear()
        self._last[:] = [ensemble]
        kept = self._parties.setdefault(party, _Party.of(ensemble))
        return kept.scored(ensemble, _table(rows, ensemble)[0], np.arange(len(rows[1])) if places is None else places)

    @property
    def _holdout(self) -> Examples:
        found: Examples | None = self.consumer.holdout
        assert found is not None
        return found


def _gained(objective: Objective, judge: Rows, grown: Sequence[Grown]) -> float:
    """By how much new trees lessen the loss of rows that they were not grown on."""
    after = judge.scores + additions(grown, leaves_of(grown, judge.binned))
    less = objective.loss(judge.scores, judge.y) - objective.loss(after, judge.y)
    return float((judge.weight * less).sum())


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


def columns_for_trees(model: Columns, features: int) -> int:
    """How many of the features are not grams of texts."""
    return features - (model.grams if isinstance(model, Auto) else 0)


def _table(rows: Examples, ensemble: Ensemble | None = None) -> tuple[Numbers, Numbers]:
    """Features, those of an ensemble, and targets."""
    x = rows[0]
    if ensemble is not None and isinstance(x, Tensor):
        x = x[:, : ensemble.bins.features]
    return features(x), _targets(rows)
