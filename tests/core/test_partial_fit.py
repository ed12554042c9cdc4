"""scikit-learn's linear models in a market, against scikit-learn itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Perceptron, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier

from databazaar import Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.learning.partial_fit import PartialFit

TRUTH = np.array([1.0, -2.0, 0.5, 0.0])


def rows(size: int, seed: int, flip: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 4))
    y = (x @ TRUTH > 0) ^ (rng.random(size) < flip)
    return x, np.where(y, "good", "bad")


def steady(**more: Any) -> SGDClassifier:
    return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, **more)


def test_an_update_is_that_of_partial_fit() -> None:
    """With every row and no shuffling, from weights that are not zero."""
    x, y = rows(30, 0)
    shared = PartialFit(steady(shuffle=False), 4, ["bad", "good"], rows=None)
    first = shared.oracle(x, y)
    w = shared.start + first(shared.start)
    own = shared.fitted(w)
    assert own.coef_.tolist() == [w[:4].tolist()] and own.intercept_.tolist() == [w[4]]
    seed_order = shared.fitted(w)
    order = _order(w, 30)
    seed_order.partial_fit(x[order], y[order])
    got = w + first(w)
    np.testing.assert_allclose(got, np.concatenate([seed_order.coef_.ravel(), seed_order.intercept_]))


def _order(w: np.ndarray, count: int) -> np.ndarray:
    import hashlib

    seed = int.from_bytes(hashlib.sha256(w.tobytes()).digest()[:4], "big")
    return np.random.default_rng(seed).permutation(count)


@pytest.mark.parametrize("kind", ["accuracy", "exp-loss"])
def test_a_market_trains_a_classifier_and_prefers_the_better_rows(kind: str, tmp_path: Path) -> None:
    shared = PartialFit(steady(), 4, ["bad", "good"], rows=50)
    x, y = rows(300, 9)
    consumer = Consumer(shared.start, budget=120, per_round=3, utility=shared.utility(x, y, kind))
    providers = [Provider(f"p{flip}", oracle=shared.oracle(*rows(80, i, flip))) for i, flip in enumerate((0, 0.2, 0.9))]
    arbiter = Arbiter(consumer, providers, engine="loop")
    report = arbiter.run(tmp_path / "run")
    trained = shared.fitted(arbiter.model)
    assert np.mean(trained.predict(x) == y) > 0.9
    if kind == "exp-loss":
        assert report.best is not None
        assert report.best.utility == pytest.approx(np.exp(-log_loss(y, trained.predict_proba(x))))
    again = Arbiter(consumer, providers, engine="loop").run(tmp_path / "again")
    assert again.ledger_head == report.ledger_head  # nothing in it is left to chance
    assert report.payouts[0].pay > report.payouts[2].pay


def test_a_regressor_and_three_classes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    line = PartialFit(SGDRegressor(), 4)
    consumer = Consumer(line.start, budget=40, per_round=2, utility=line.utility(x, x @ TRUTH))
    providers = [Provider(f"p{i}", oracle=line.oracle(x[i::2], x[i::2] @ TRUTH)) for i in range(2)]
    assert Arbiter(consumer, providers, Uniform(), engine="loop").run().final_utility > 0.99
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    three = PartialFit(Perceptron(), 4, [0, 1, 2])
    assert three.start.shape == (15,)
    judge = three.utility(x, y)
    assert judge(three.start + three.oracle(x, y)(three.start)) > 0.6


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: PartialFit(LogisticRegression(), 4, [0, 1]), "LogisticRegression has no partial_fit"),
        (lambda: PartialFit(MLPClassifier(), 4, [0, 1]), "MLPClassifier is no linear model"),
        (lambda: PartialFit(GaussianNB(), 4, [0, 1]), "GaussianNB is no linear model"),
        (lambda: PartialFit(SGDClassifier(), 4), "SGDClassifier classifies: give classes"),
        (lambda: PartialFit(SGDRegressor(average=True), 4), "leave average out"),
        (lambda: PartialFit(SGDRegressor(), 4, rows=0), "rows = 0 must be positive"),
        (lambda: PartialFit(SGDRegressor(), 4).fitted(np.zeros(3)), "the model has 5 weights, not"),
        (lambda: PartialFit(SGDRegressor(), 4).oracle(np.zeros((2, 3)), [0, 1]), "give 4 features"),
        (lambda: PartialFit(SGDClassifier(), 1, [0, 1]).oracle([[0.0]], [2]), "label 2 is none of the classes"),
        (lambda: PartialFit(SGDRegressor(), 4).utility([], [], "accuracy"), "utility 'accuracy' is unknown here"),
        (lambda: PartialFit(SGDClassifier(), 1, [0, 1]).utility([], [], "exp-loss"), "exp-loss needs probabilities"),
    ],
)
def test_what_is_no_vector_is_named(attempt: Any, words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        attempt()
