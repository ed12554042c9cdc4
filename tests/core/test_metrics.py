"""The metrics are scikit-learn's, their intervals those of a bootstrap, and what is undefined is NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from databazaar.errors import BazaarError
from databazaar.learning.metrics import intervals, metrics, softmax

Probabilities = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def answers(seed: int, rows: int, classes: int, steps: int) -> tuple[Probabilities, NDArray[np.int64]]:
    """Probabilities with many ties (only `steps` different scores), and labels that they know something of."""
    rng = np.random.default_rng(seed)
    outputs = rng.integers(0, steps, (rows, classes)).astype(float)
    y = np.where(rng.random(rows) < 0.5, outputs.argmax(1), rng.integers(0, classes, rows))
    y[:classes] = np.arange(classes)
    return softmax(outputs), y


@given(SEEDS, st.integers(5, 60), st.integers(2, 5), st.integers(1, 50))
def test_classification_is_scikit_learns(seed: int, rows: int, classes: int, steps: int) -> None:
    p, y = answers(seed, rows, classes, steps)
    labels = list(range(classes))
    expected = {
        "accuracy": accuracy_score(y, p.argmax(1)),
        "log_loss": log_loss(y, p, labels=labels),
        "auc": roc_auc_score(y, p[:, 1]) if classes == 2 else roc_auc_score(y, p, multi_class="ovr", labels=labels),
        "brier": brier_score_loss(y, p[:, 1] if classes == 2 else p, labels=labels),
    }
    found = metrics("classification", p, y)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(SEEDS, st.integers(2, 60), st.floats(0.01, 1e6))
def test_regression_is_scikit_learns(seed: int, rows: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(3, scale, rows)
    predictions = y + rng.normal(0, scale, rows)
    expected = {
        "rmse": root_mean_squared_error(y, predictions),
        "mae": mean_absolute_error(y, predictions),
        "r2": r2_score(y, predictions),
    }
    assert metrics("regression", predictions, y) == pytest.approx(expected, rel=1e-9)


def test_auc_counts_every_pair() -> None:
    p, y = answers(4, 40, 2, 4)
    scores = p[:, 1]
    pairs = [(a > b) + (a == b) / 2 for a in scores[y == 1] for b in scores[y == 0]]
    assert metrics("classification", p, y)["auc"] == pytest.approx(np.mean(pairs))


def test_what_is_undefined_is_nan() -> None:
    one_class = metrics("classification", [[0.2, 0.8], [0.6, 0.4]], [1, 1])
    assert np.isnan(one_class["auc"]) and one_class["accuracy"] == 0.5
    assert np.isnan(intervals("classification", [[0.2, 0.8], [0.6, 0.4]], [1, 1])["auc"]).all()
    constant = metrics("regression", [1.0, 2.0], [5.0, 5.0])
    assert np.isnan(constant["r2"]) and constant["mae"] == 3.5
    assert np.isnan(list(metrics("regression", [1.0, np.inf], [5.0, 6.0]).values())).all()
    assert np.isnan(list(metrics("classification", [[np.nan, 0.5]], [0]).values())).all()
    assert np.isnan(list(intervals("regression", [1.0], [2.0]).values())).all()  # one row tells nothing of its spread


def test_auc_of_a_class_that_no_row_is_of_is_left_out() -> None:
    p, y = answers(1, 30, 3, 20)
    y[y == 2] = 0
    there = [roc_auc_score(y == c, p[:, c]) for c in (0, 1)]
    assert metrics("classification", p, y)["auc"] == pytest.approx(np.mean(there))


def test_certainty_that_errs_is_finite_and_perfect_answers_are_perfect() -> None:
    wrong = metrics("classification", [[1.0, 0.0], [0.0, 1.0]], [1, 0])
    assert wrong["log_loss"] == pytest.approx(log_loss([1, 0], [[1.0, 0.0], [0.0, 1.0]])) and wrong["auc"] == 0
    assert metrics("regression", [1.0, 2.0], [1.0, 2.0]) == {"rmse": 0, "mae": 0, "r2": 1}
    low, high = intervals("classification", np.eye(2)[[0, 1] * 10], np.array([0, 1] * 10))["accuracy"]
    assert 0.8 < low < high == 1.0
    assert intervals("regression", [1.0, 2.0], [1.0, 2.0])["rmse"] == (0, 0)


@pytest.mark.parametrize("task", ["classification", "many classes", "regression"])
def test_intervals_are_a_bootstraps(task: str) -> None:
    rng = np.random.default_rng(0)
    given: NDArray[np.float64]
    y: NDArray[np.float64] | NDArray[np.int64]
    if task == "regression":
        y = rng.normal(0, 1, 400)
        given = 0.7 * y + rng.normal(0, 0.5, 400)
    else:
        given, y = answers(3, 400, 2 if task == "classification" else 4, 30)
    kind = task if task == "regression" else "classification"
    draws = [metrics(kind, given[rows], y[rows]) for rows in rng.integers(0, 400, (1500, 400))]
    value = metrics(kind, given, y)
    for name, (low, high) in intervals(kind, given, y).items():
        assert low <= value[name] <= high
        slow = np.quantile([draw[name] for draw in draws], [0.025, 0.975])
        assert np.abs(np.array([low, high]) - slow).max() < 0.15 * (slow[1] - slow[0]), name


@pytest.mark.parametrize(
    ("task", "given", "y"),
    [
        ("classification", [0.5, 0.5], [0, 1]),
        ("classification", [[1.0], [1.0]], [0, 0]),
        ("classification", [[0.5, 0.5]], [2]),
        ("classification", [[0.5, 0.5]], [-1]),
        ("classification", [[0.5, 0.5]], [0.0]),
        ("classification", np.zeros((0, 2)), np.zeros(0, dtype=int)),
        ("regression", [1.0, 2.0], [1.0]),
        ("regression", [], []),
        ("ranking", [1.0], [1.0]),
    ],
)
def test_what_does_not_fit_is_refused(task: str, given: object, y: object) -> None:
    with pytest.raises(BazaarError):
        metrics(task, given, y)  # type: ignore[arg-type]
