"""How good answers are, in the words that people use. NumPy alone; a metric that is undefined on the rows is NaN.

Every metric comes with how much each row moves it (its influence), so that a 95 % interval costs no resampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError

Numbers = NDArray[np.float64]

SMALLEST = float(np.finfo(np.float64).eps)
"""No right answer counts as less likely than this, as in scikit-learn: log loss stays finite."""
Z = 1.959963984540054
BOUNDS = {
    "accuracy": (0.0, 1.0),
    "log_loss": (0.0, np.inf),
    "auc": (0.0, 1.0),
    "brier": (0.0, 2.0),
    "rmse": (0.0, np.inf),
    "mae": (0.0, np.inf),
    "r2": (-np.inf, 1.0),
}
"""The metrics that there are, and where each one lies."""


def metrics(task: str, answers: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Probabilities [n, classes] of a classification, or the numbers [n] of a regression, against what is true.

    AUC is that of the second class where there are two, else the mean over the classes that some rows are of and
    some are not; NaN where there is no such class. The Brier score is scikit-learn's: with two classes (p − y)² of
    the second, else the sum over classes. R² is NaN where all of y is one number. Answers that are not all finite have
    no metrics: each is NaN.

    >>> found = metrics("classification", [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1, 1])
    >>> {name: round(value, 3) for name, value in found.items()}
    {'accuracy': 0.75, 'log_loss': 0.646, 'auc': 1.0, 'brier': 0.225}
    """
    return {name: estimate.value for name, estimate in _estimates(task, answers, y).items()}


def intervals(task: str, answers: ArrayLike, y: ArrayLike) -> dict[str, tuple[float, float]]:
    """95 % intervals of the same metrics: Wilson's for accuracy, DeLong's for AUC, the delta method for the others."""
    return {name: estimate.interval(name) for name, estimate in _estimates(task, answers, y).items()}


def softmax(outputs: ArrayLike) -> Numbers:
    """Outputs [n, classes] of a classifier as probabilities, in float64.

    >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    scores = np.asarray(outputs, dtype=np.float64)
    with np.errstate(invalid="ignore", under="ignore"):
        powers = np.exp(scores - scores.max(1, keepdims=True))
        shares: Numbers = powers / powers.sum(1, keepdims=True)
    return shares


@dataclass(frozen=True)
class _Estimate:
    """A metric's value, and how much each row moves it: the standard error is that of the influences' mean."""

    value: float
    influence: Numbers

    def interval(self, name: str) -> tuple[float, float]:
        rows = len(self.influence)
        if not np.isfinite(self.value) or rows < 2:
            return float("nan"), float("nan")
        if name == "accuracy":
            middle = (self.value + Z**2 / (2 * rows)) / (1 + Z**2 / rows)
            half = Z * np.sqrt(self.value * (1 - self.value) / rows + Z**2 / (4 * rows**2)) / (1 + Z**2 / rows)
        else:
            middle, half = self.value, Z * float(self.influence.std(ddof=1)) / np.sqrt(rows)
        low, high = BOUNDS[name]
        return float(min(max(middle - half, low), self.value)), float(max(min(middle + half, high), self.value))


def _estimates(task: str, answers: ArrayLike, y: ArrayLike) -> dict[str, _Estimate]:
    given = np.asarray(answers, dtype=np.float64)
    finite = np.isfinite(given)
    usable = np.where(finite, given, 0.0)
    if task == "classification":
        found = _of_classes(usable, np.asarray(y))
    elif task == "regression":
        found = _of_numbers(usable.reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1))
    else:
        raise BazaarError(f"task {task!r} is unknown: use classification or regression")
    if finite.all():
        return found
    return {name: _Estimate(float("nan"), each.influence) for name, each in found.items()}


def _of_classes(p: Numbers, y: NDArray[Any]) -> dict[str, _Estimate]:
    if p.ndim != 2 or p.shape[1] < 2 or y.shape != p.shape[:1]:
        raise BazaarError(
            f"probabilities {list(p.shape)} do not fit targets {list(y.shape)}: give [rows, classes] and [rows], "
            "and two classes at least"
        )
    rows, classes = p.shape
    if not rows or not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= classes:
        raise BazaarError(f"targets must be places of {classes} classes, 0 … {classes - 1}, and one row at least")
    of_class = y[:, None] == np.arange(classes)
    brier = ((p - of_class) ** 2).sum(1) / (2 if classes == 2 else 1)
    return {
        "accuracy": _mean((p.argmax(1) == y).astype(np.float64)),
        "log_loss": _mean(-np.log(np.clip(p[np.arange(rows), y], SMALLEST, 1.0))),
        "auc": _macro([_auc(p[:, c], of_class[:, c]) for c in ([1] if classes == 2 else range(classes))]),
        "brier": _mean(brier),
    }


def _of_numbers(predictions: Numbers, y: Numbers) -> dict[str, _Estimate]:
    if not len(y) or len(y) != len(predictions):
        raise BazaarError(f"{len(predictions)} predictions do not fit {len(y)} targets: give one of each a row")
    with np.errstate(over="ignore"):
        squares = (predictions - y) ** 2
    around = (y - y.mean()) ** 2
    error, variance = float(squares.mean()), float(around.mean())
    root = float(np.sqrt(error))
    if (y == y[0]).all():
        r2 = _Estimate(float("nan"), np.zeros(len(y)))
    else:
        r2 = _Estimate(1 - error / variance, (around * error / variance - squares) / variance)
    return {
        "rmse": _Estimate(root, (squares - error) / (2 * root) if root else np.zeros(len(y))),
        "mae": _mean(np.abs(predictions - y)),
        "r2": r2,
    }


def _mean(each: Numbers) -> _Estimate:
    return _Estimate(float(each.mean()), each)


def _auc(scores: Numbers, positive: NDArray[np.bool_]) -> _Estimate | None:
    """The chance that a positive row scores above a negative one, a tie counting half; None without one of each."""
    there, absent = int(positive.sum()), int((~positive).sum())
    if not there or not absent:
        return None
    _, place = np.unique(scores, return_inverse=True)
    above = np.bincount(place[positive], minlength=place.max() + 1)
    below = np.bincount(place[~positive], minlength=place.max() + 1)
    beats = ((np.cumsum(below) - below / 2) / absent)[place]  # of the negatives, the share that a row beats
    loses = (1 - (np.cumsum(above) - above / 2) / there)[place]  # of the positives, the share that beats a row
    value = float(beats[positive].mean())
    share = np.where(positive, (beats - value) / there, (loses - value) / absent)
    return _Estimate(value, share * len(scores))


def _macro(found: list[_Estimate | None]) -> _Estimate:
    known = [estimate for estimate in found if estimate is not None]
    if not known:
        return _Estimate(float("nan"), np.zeros(1))
    value = float(np.mean([estimate.value for estimate in known]))
    return _Estimate(value, np.mean([estimate.influence for estimate in known], axis=0))
