"""Objectives: gradients are derivatives, hessians make steps that do not overshoot, starts are the best constants."""

from __future__ import annotations

import numpy as np
import pytest

from databazaar.errors import BazaarError
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.objectives import Objective
from tree_rounds import KINDS, objective, table, trained

TWICE = {"squared"}
"""Half of the squared residual has the gradient that trees take."""


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_loss(kind: str) -> None:
    y = table(kind, 300).y
    loss = objective(kind, y)
    scores = np.random.default_rng(1).normal(size=(300, loss.classes))
    gradients, hessians = loss.gradients(scores, y)
    assert (hessians > 0).all()
    if kind in ("absolute", "quantile"):  # a kink at the target, and quadratic near it
        away = np.abs(scores[:, 0] - y) > 0.5 * loss.unit
        scores, y, gradients = scores[away], y[away], gradients[away] / loss.unit
    for place in range(loss.classes):
        step = np.zeros(loss.classes)
        step[place] = 1e-5
        slope = (loss.loss(scores + step, y) - loss.loss(scores - step, y)) / 2e-5
        assert np.allclose(
            -slope / (1 + (kind in TWICE)), gradients[:, place], atol=2e-2 if kind in ("absolute", "quantile") else 1e-6
        )


@pytest.mark.parametrize("kind", ["absolute", "quantile"])
def test_one_leaf_ends_at_the_quantile_and_never_steps_back(kind: str) -> None:
    """With sums alone, and no median of anybody's rows."""
    y = np.random.default_rng(0).lognormal(size=501) * 1_000
    loss = objective(kind, y)
    score, before = np.zeros((1, 1)), np.inf
    for _ in range(300):
        gradients, hessians = loss.gradients(np.tile(score, (501, 1)), y)
        score = score + 0.1 * gradients.sum() / hessians.sum()
        now = float(loss.loss(np.tile(score, (501, 1)), y).mean())
        assert now <= before * (1 + 1e-4)
        before = now
    assert before <= 1.002 * float(loss.loss(np.full((501, 1), np.quantile(y, loss.alpha)), y).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_is_the_best_constant(kind: str) -> None:
    y = table(kind, 500).y
    loss = objective(kind, y)
    start = loss.start(y)
    assert start.shape == (loss.classes,)
    best = float(loss.loss(np.tile(start, (500, 1)), y).mean())
    for step in 0.1 * np.vstack([np.eye(loss.classes), -np.eye(loss.classes)]):
        assert float(loss.loss(np.tile(start + step, (500, 1)), y).mean()) > best


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_is_as_many_rows(kind: str) -> None:
    y = table(kind, 200).y
    loss = objective(kind, y)
    weight = np.random.default_rng(0).integers(1, 4, 200).astype(float)
    assert np.allclose(loss.start(y, weight), loss.start(np.repeat(y, weight.astype(int))))
    scores = np.full((200, loss.classes), 0.3)
    for weighted, single in zip(loss.gradients(scores, y, weight), loss.gradients(scores, y), strict=True):
        assert (weighted == single * weight[:, None]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_some_rows_are_those_of_all(kind: str) -> None:
    """A party computes the gradients of its rows by itself, to the same bit."""
    y = table(kind, 333).y
    loss = objective(kind, y)
    scores = np.random.default_rng(0).normal(size=(333, loss.classes))
    whole = loss.gradients(scores, y)
    for some in (slice(0, 1), slice(5, 18), slice(100, 333)):
        assert all(
            (one == other[some]).all() for one, other in zip(loss.gradients(scores[some], y[some]), whole, strict=True)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_trees_learn_it(kind: str) -> None:
    given, fresh = table(kind, 2_000), table(kind, 2_000, seed=1)
    ensemble = trained(kind, given, 60, Growth(leaves=15))
    loss = ensemble.objective
    learnt = float(loss.loss(ensemble.scores(ensemble.bins.apply(fresh.x)), fresh.y).mean())
    constant = float(loss.loss(np.tile(ensemble.start, (2_000, 1)), fresh.y).mean())
    assert constant - learnt > {"absolute": 0.15, "poisson": 0.1, "quantile": 0.04}.get(kind, 0.2 * abs(constant))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_probabilities_or_numbers(kind: str) -> None:
    loss = objective(kind, table(kind, 100).y)
    answers = loss.answers(np.random.default_rng(0).normal(size=(7, loss.classes)))
    assert answers.shape == ((7, 3) if kind == "multiclass" else (7,))
    if kind == "multiclass":
        assert np.allclose(answers.sum(1), 1)
    if kind in ("binary", "poisson"):
        assert (answers > 0).all()


def test_far_scores_stay_finite() -> None:
    for kind in ("binary", "multiclass"):
        loss = Objective(kind, 3 if kind == "multiclass" else 1)
        scores = np.array([[-800.0, 800.0, 0.0][: loss.classes]] * 2)
        y = np.array([0.0, 1.0])
        found = [*loss.gradients(scores, y), loss.loss(scores, y), loss.answers(scores)]
        assert all(np.isfinite(each).all() for each in found)


@pytest.mark.parametrize(
    ("kind", "classes", "alpha", "words"),
    [
        ("hinge", 1, 0.5, "use binary, multiclass"),
        ("binary", 2, 0.5, "multiclass has 2 or more"),
        ("multiclass", 1, 0.5, "multiclass has 2 or more"),
        ("quantile", 1, 1.0, "between 0 and 1"),
    ],
)
def test_unknown_objectives_are_refused(kind: str, classes: int, alpha: float, words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        Objective(kind, classes, alpha)
