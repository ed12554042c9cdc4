"""Linear models of scikit-learn that learn by `partial_fit`, as one vector that a market can train."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError

Vector = NDArray[np.float64]


class PartialFit:
    """A market's side of a scikit-learn estimator that has `partial_fit`, `coef_` and `intercept_`.

    Such are SGDClassifier, SGDRegressor, Perceptron and the like. `start` is the model for the Consumer, `utility` its
    judge, `oracle` a Provider's work, and `fitted` the estimator with what was bought. Trees, neighbours and networks
    of scikit-learn have no such vector: for a network, bring a torch module.

    An ask is one pass of `partial_fit` over at most `rows` rows, drawn afresh for every model that is asked about. A
    learning rate that falls with time begins afresh too: `learning_rate="constant"` does what it says.

    >>> from sklearn.linear_model import SGDClassifier
    >>> shared = PartialFit(SGDClassifier(loss="log_loss"), features=2, classes=["no", "yes"])
    >>> shared.start
    array([0., 0., 0.])
    >>> update = shared.oracle([[0.0, 1.0], [1.0, 0.0]], ["no", "yes"])(shared.start)
    >>> shared.fitted(shared.start + update).predict([[1.0, 0.0]]).tolist()
    ['yes']
    """

    def __init__(
        self, estimator: Any, features: int, classes: Sequence[Any] | None = None, rows: int | None = 2048
    ) -> None:
        try:
            from sklearn.base import clone, is_classifier
        except ImportError:
            raise BazaarError("PartialFit needs scikit-learn: pip install scikit-learn") from None
        name = type(estimator).__name__
        if not hasattr(estimator, "partial_fit"):
            raise BazaarError(f"{name} has no partial_fit: use SGDClassifier or SGDRegressor, or bring a torch module")
        if rows is not None and not rows > 0:
            raise BazaarError(f"rows = {rows} must be positive, or None for all of them")
        if getattr(estimator, "average", False):
            raise BazaarError(f"{name}(average=…) learns other weights than it shows: leave average out")
        self._classes = None if classes is None else np.array(classes)
        self._rows = rows
        self.classifies = bool(is_classifier(estimator))
        if self.classifies and (self._classes is None or len(self._classes) < 2):
            raise BazaarError(f"{name} classifies: give classes = [...], every one that anybody may have")
        self._estimator = self._begun(clone(estimator), features)
        if not (hasattr(self._estimator, "coef_") and hasattr(self._estimator, "intercept_")):
            raise BazaarError(f"{name} is no linear model with coef_ and intercept_: bring a torch module instead")

    def _begun(self, estimator: Any, features: int) -> Any:
        """The estimator after it has seen rows of zeros: it then has all that it learns into."""
        nothing = np.zeros((len(self._classes) if self._classes is not None else 1, features))
        if self.classifies:
            return estimator.partial_fit(nothing, self._classes, classes=self._classes)
        return estimator.partial_fit(nothing, np.zeros(1))

    @property
    def start(self) -> Vector:
        """All weights at zero: the model to bring as `Consumer(model=…)`."""
        return np.zeros(self._estimator.coef_.size + self._estimator.intercept_.size)

    def fitted(self, params: ArrayLike) -> Any:
        """The estimator with these weights, as `arbiter.model` has them: it predicts, and can be kept."""
        estimator = copy.deepcopy(self._estimator)
        vector, cut = np.array(params, dtype=np.float64), estimator.coef_.size
        if vector.shape != self.start.shape:
            raise BazaarError(f"the model has {self.start.size} weights, not {list(vector.shape)}: give arbiter.model")
        estimator.coef_ = vector[:cut].reshape(estimator.coef_.shape)
        estimator.intercept_ = vector[cut:].reshape(estimator.intercept_.shape)
        if hasattr(estimator, "t_"):
            estimator.t_ = 1.0
        return estimator

    def oracle(self, x: ArrayLike, y: ArrayLike) -> Callable[[Vector], Vector]:
        """What a provider with these rows answers: w⁺ − w. The same question always gets the same answer."""
        rows, targets = np.array(x, dtype=np.float64), np.array(y)
        if rows.ndim != 2 or rows.shape != (len(targets), self._estimator.n_features_in_) or not len(rows):
            raise BazaarError(
                f"rows of shape {list(rows.shape)} and {len(targets)} targets: give {self._estimator.n_features_in_} "
                "features and one target per row"
            )
        strange = [] if self._classes is None else sorted(set(targets.tolist()) - set(self._classes.tolist()), key=str)
        if strange:
            raise BazaarError(f"label {strange[0]!r} is none of the classes: name every class in PartialFit(classes=…)")

        def update(params: Vector) -> Vector:
            seed = int.from_bytes(hashlib.sha256(params.tobytes()).digest()[:4], "big")
            chosen = np.random.default_rng(seed).permutation(len(rows))[: self._rows]
            estimator = self.fitted(params)
            if "random_state" in estimator.get_params():
                estimator.set_params(random_state=seed)
            estimator.partial_fit(rows[chosen], targets[chosen])
            return np.concatenate([estimator.coef_.ravel(), estimator.intercept_.ravel()]) - params

        return update

    def utility(self, x: ArrayLike, y: ArrayLike, kind: str | None = None) -> Callable[[Vector], float]:
        """How good weights are on these rows, in [0, 1].

        "accuracy" (a classifier's default) is the share of right answers; "exp-loss" is exp(−log loss) of a classifier
        with predict_proba, and exp(−½ · mean squared error) of a regressor, which has no other.
        """
        rows, targets = np.array(x, dtype=np.float64), np.array(y)
        kind = kind or ("accuracy" if self.classifies else "exp-loss")
        known = ("accuracy", "exp-loss") if self.classifies else ("exp-loss",)
        if kind not in known:
            raise BazaarError(f"utility {kind!r} is unknown here: use {' or '.join(known)}, or a callable of your own")
        if self.classifies and kind == "exp-loss" and not hasattr(self._estimator, "predict_proba"):
            raise BazaarError('exp-loss needs probabilities: SGDClassifier(loss="log_loss") has them, or use accuracy')

        def judge(params: Vector) -> float:
            estimator = self.fitted(params)
            if kind == "accuracy":
                return float(np.mean(estimator.predict(rows) == targets))
            if not self.classifies:
                return float(np.exp(-np.mean((estimator.predict(rows) - targets) ** 2) / 2))
            from sklearn.metrics import log_loss

            return float(np.exp(-log_loss(targets, estimator.predict_proba(rows), labels=estimator.classes_)))

        return judge
