"""What trees are grown to improve: a loss of scores, with its negative gradients and its hessians row by row.

Scores are what trees add up to: log odds, logits of classes, numbers, logarithms of counts. A leaf moves its rows by
rate · Σ gradient / (Σ hessian + l2), and both sums add up over parties. That holds for absolute and quantile loss too:
LightGBM gives their leaves quantiles of residuals, which do not add up. Here their hessian is that of the quadratic
that lies above the loss and touches it at the current score (Hunter and Lange, Quantile regression via an MM algorithm,
2000), made flatter near the target, where it would hold a leaf back for longer than the rate already does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError

Numbers = NDArray[np.float64]
Pair = tuple[Numbers, Numbers]

LEAST_HESSIAN = 1e-16
CLOSE = 0.01
"""The gradient of absolute and quantile loss changes sign gradually, within about so many units of the target."""
FLAT = 0.5
"""Their hessian is that of a residual so many units larger: a leaf then gets as far in a round as LightGBM's."""
SAFETY = 0.7
"""Poisson's hessian is e^0.7 times as large as it is, as in LightGBM: a rare count does not take a step too long."""


@dataclass(frozen=True)
class Objective:
    """One kind of loss. `classes`: how many scores a row has, each with a tree a round.

    `unit` is the size of a residual in absolute and quantile loss, which have no hessian of their own: `fitted` takes
    it from the buyer's targets. `alpha` is the quantile.
    """

    kind: str
    classes: int = 1
    alpha: float = 0.5
    unit: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BazaarError(f"objective {self.kind!r} is unknown: use {', '.join(KINDS)}")
        if (self.classes >= 2) != (self.kind == "multiclass"):
            raise BazaarError(
                f"objective {self.kind} with {self.classes} scores a row: multiclass has 2 or more, others 1"
            )
        if not 0 < self.alpha < 1:
            raise BazaarError(f"quantile {self.alpha} is not between 0 and 1")

    def fitted(self, y: Numbers) -> Objective:
        """The same, with the unit that the buyer's targets show: the distance of their quartiles."""
        low, high = np.quantile(y, (0.25, 0.75))
        unit = float(high - low) or float(np.std(y)) or 1.0
        return Objective(self.kind, self.classes, self.alpha, unit) if self.kind in ("absolute", "quantile") else self

    def start(self, y: Numbers, weight: Numbers | None = None) -> Numbers:
        """The one score [classes] that fits the buyer's targets best."""
        return np.atleast_1d(KINDS[self.kind].start(self, y, np.ones(len(y)) if weight is None else weight))

    def gradients(self, scores: Numbers, y: Numbers, weight: Numbers | None = None) -> Pair:
        """Negative gradients and hessians [rows, classes] at these scores [rows, classes]."""
        gradient, hessian = KINDS[self.kind].gradients(self, scores, y[:, None])
        hessian = np.maximum(hessian, LEAST_HESSIAN)
        return (gradient, hessian) if weight is None else (gradient * weight[:, None], hessian * weight[:, None])

    def loss(self, scores: Numbers, y: Numbers) -> Numbers:
        """The loss of every row: of scores [… , rows, classes], [… , rows]."""
        return KINDS[self.kind].loss(self, scores, y)

    def answers(self, scores: Numbers) -> Numbers:
        """Probabilities [rows, classes], the second class's where there are two [rows], or numbers [rows]."""
        return KINDS[self.kind].answers(scores)

    @property
    def lightgbm(self) -> str:
        """The objective's name in LightGBM's file, with which it makes answers of scores."""
        return KINDS[self.kind].lightgbm.format(classes=self.classes, alpha=self.alpha)


@dataclass(frozen=True)
class _Kind:
    lightgbm: str
    start: Callable[[Objective, Numbers, Numbers], Numbers | float]
    gradients: Callable[[Objective, Numbers, Numbers], Pair]
    loss: Callable[[Objective, Numbers, Numbers], Numbers]
    answers: Callable[[Numbers], Numbers]


def sigmoid(scores: Numbers) -> Numbers:
    """1 / (1 + e^−score), without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    power = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1.0, power) / (1.0 + power)


def softmax(scores: Numbers) -> Numbers:
    """Probabilities of classes, along the last axis."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    shares: Numbers = powers / powers.sum(-1, keepdims=True)
    return shares


def weighted_quantile(y: Numbers, weight: Numbers, alpha: float) -> float:
    """The least number that at least a share `alpha` of the weight is not above.

    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.ones(3), 0.5)
    2.0
    """
    order = np.argsort(y, kind="stable")
    reached = np.cumsum(weight[order])
    return float(y[order][min(np.searchsorted(reached, alpha * reached[-1]), len(y) - 1)])


def _log_odds(_: Objective, y: Numbers, weight: Numbers) -> float:
    share = np.clip(np.average(y, weights=weight), 1e-6, 1 - 1e-6)
    return float(np.log(share / (1 - share)))


def _of_log_loss(_: Objective, scores: Numbers, y: Numbers) -> Pair:
    p = sigmoid(scores)
    return y - p, p * (1 - p)


def _log_loss(_: Objective, scores: Numbers, y: Numbers) -> Numbers:
    margin = scores[..., 0] * (1 - 2 * y)
    return np.maximum(margin, 0) + np.log1p(np.exp(-np.abs(margin)))


def _log_shares(objective: Objective, y: Numbers, weight: Numbers) -> Numbers:
    shares = np.bincount(y.astype(np.intp), weight, objective.classes) / weight.sum()
    found: Numbers = np.log(np.maximum(shares, 1e-6))
    return found


def _of_softmax(objective: Objective, scores: Numbers, y: Numbers) -> Pair:
    p = softmax(scores)
    return (y == np.arange(objective.classes)) - p, objective.classes / (objective.classes - 1) * p * (1 - p)


def _softmax_loss(objective: Objective, scores: Numbers, y: Numbers) -> Numbers:
    most = scores.max(-1)
    right = (y[:, None] == np.arange(objective.classes)).astype(np.float64)
    found: Numbers = most + np.log(np.exp(scores - most[..., None]).sum(-1)) - (scores * right).sum(-1)
    return found


def _mean(_: Objective, y: Numbers, weight: Numbers) -> float:
    return float(np.average(y, weights=weight))


def _of_squares(_: Objective, scores: Numbers, y: Numbers) -> Pair:
    return y - scores, np.ones_like(scores)


def _squares(_: Objective, scores: Numbers, y: Numbers) -> Numbers:
    return (scores[..., 0] - y) ** 2


def _quantile(objective: Objective, y: Numbers, weight: Numbers) -> float:
    return weighted_quantile(y, weight, objective.alpha)


def _of_quantile(objective: Objective, scores: Numbers, y: Numbers) -> Pair:
    residual = (y - scores) / objective.unit
    far = np.abs(residual)
    return objective.unit * (objective.alpha - 0.5 + residual / (far + CLOSE) / 2), 0.5 / (far + FLAT)


def _quantile_loss(objective: Objective, scores: Numbers, y: Numbers) -> Numbers:
    residual = y - scores[..., 0]
    return np.maximum(objective.alpha * residual, (objective.alpha - 1) * residual)


def _median(_: Objective, y: Numbers, weight: Numbers) -> float:
    return weighted_quantile(y, weight, 0.5)


def _of_absolute(objective: Objective, scores: Numbers, y: Numbers) -> Pair:
    gradient, hessian = _of_quantile(Objective("quantile", unit=objective.unit), scores, y)
    return 2 * gradient, 2 * hessian


def _absolute(_: Objective, scores: Numbers, y: Numbers) -> Numbers:
    return np.abs(scores[..., 0] - y)


def _log_mean(_: Objective, y: Numbers, weight: Numbers) -> float:
    return float(np.log(max(np.average(y, weights=weight), 1e-6)))


def _of_poisson(_: Objective, scores: Numbers, y: Numbers) -> Pair:
    rate = np.exp(scores)
    return y - rate, rate * np.exp(SAFETY)


def _poisson(_: Objective, scores: Numbers, y: Numbers) -> Numbers:
    return np.exp(scores[..., 0]) - y * scores[..., 0]


def _one(scores: Numbers) -> Numbers:
    return scores[..., 0]


KINDS = {
    "binary": _Kind("binary sigmoid:1", _log_odds, _of_log_loss, _log_loss, lambda scores: sigmoid(scores[..., 0])),
    "multiclass": _Kind("multiclass num_class:{classes}", _log_shares, _of_softmax, _softmax_loss, softmax),
    "squared": _Kind("regression", _mean, _of_squares, _squares, _one),
    "absolute": _Kind("regression_l1", _median, _of_absolute, _absolute, _one),
    "quantile": _Kind("quantile alpha:{alpha}", _quantile, _of_quantile, _quantile_loss, _one),
    "poisson": _Kind("poisson", _log_mean, _of_poisson, _poisson, lambda scores: np.exp(scores[..., 0])),
}
