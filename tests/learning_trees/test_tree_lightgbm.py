"""Beside LightGBM: the file that it opens, and how well it does on the same rows with the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn import datasets

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Bins
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.lightgbm_text import lightgbm_text
from tree_rounds import KINDS, Table, objective, table, trained

NAMES = ("binary", "multiclass", "regression", "regression_l1", "quantile", "poisson")


def opened(ensemble: Ensemble, folder: Path) -> Any:
    path = folder / "model.txt"
    path.write_text(lightgbm_text(ensemble), encoding="utf-8")
    return lightgbm.Booster(model_file=str(path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_lightgbm_opens_the_file_to_the_same_predictions(kind: str, missing: float, tmp_path: Path) -> None:
    """Also for rows that nobody has seen: unknown categories, missing and infinite numbers."""
    ensemble = trained(kind, table(kind, missing=missing))
    x = table(kind, 400, seed=1, missing=0.2).x
    x[:40, 2], x[40:50, 0], x[50:60, 1] = np.arange(40, 80), np.inf, -np.inf
    booster = opened(ensemble, tmp_path)
    scores = booster.predict(x, raw_score=True).reshape(400, -1)
    assert np.allclose(scores, ensemble.scores(ensemble.bins.apply(x)), rtol=1e-13, atol=1e-15)
    assert np.allclose(booster.predict(x), ensemble.predict(x), rtol=1e-12)
    for by in ("gain", "split"):
        assert np.allclose(booster.feature_importance(by), ensemble.importance(by))
    values = booster.predict(x, pred_contrib=True).reshape(400, ensemble.objective.classes, -1)
    assert np.allclose(values.sum(-1), scores, rtol=1e-9, atol=1e-10)
    assert np.abs(values[..., 0]).mean() > np.abs(values[..., 1]).mean()


@pytest.mark.parametrize("kind", ["binary", "multiclass", "squared"])
def test_an_ensemble_without_rounds_gives_its_start(kind: str, tmp_path: Path) -> None:
    given = table(kind)
    loss = objective(kind, given.y)
    ensemble = Ensemble(Bins.of(given.x, given.categorical), loss, loss.start(given.y))
    assert np.allclose(opened(ensemble, tmp_path).predict(given.x), ensemble.predict(given.x), rtol=1e-13)


def test_names_of_features_are_in_the_file() -> None:
    ensemble = trained("squared", table("squared"))
    names = ["age", "größe", "city", "kind"]
    assert lightgbm.Booster(model_str=lightgbm_text(ensemble, names)).feature_name() == names
    for wrong, words in ((["a"], "1 names for 4"), (["a", "b", "c", "d e"], "'d e'"), (["a"] * 4, "all different")):
        with pytest.raises(BazaarError, match=words):
            lightgbm_text(ensemble, wrong)


def theirs(kind: str, given: Table, rounds: int, rate: float) -> Any:
    settings = {
        "objective": NAMES[KINDS.index(kind)],
        "num_class": 3 if kind == "multiclass" else 1,
        "alpha": 0.8,
        "learning_rate": rate,
        "num_leaves": 31,
        "min_data_in_leaf": 20,
        "lambda_l2": 1.0,
        "num_threads": 1,
        "verbose": -1,
        "seed": 0,
    }
    data = lightgbm.Dataset(given.x, given.y, categorical_feature=[*given.categorical], params={"verbose": -1})
    return lightgbm.train(settings, data, rounds)


def losses(kind: str, given: Table, fresh: Table, rounds: int, rate: float) -> tuple[float, float]:
    """The loss on fresh rows: ours, LightGBM's."""
    ensemble = trained(kind, given, rounds, Growth(rate=rate))
    scores = theirs(kind, given, rounds, rate).predict(fresh.x, raw_score=True).reshape(len(fresh.y), -1)
    mine = ensemble.scores(ensemble.bins.apply(fresh.x))
    return tuple(float(ensemble.objective.loss(each, fresh.y).mean()) for each in (mine, scores))  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
def test_level_with_lightgbm_on_missing_values_and_categories(kind: str) -> None:
    """Within what one table says. Over five, ours is 0.6 % behind with categories like these, and level without."""
    ours, lightgbms = losses(kind, table(kind, 4_000), table(kind, 4_000, seed=1), 60, 0.05)
    assert ours < 1.02 * lightgbms


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_level_with_lightgbm_on_real_tables(name: str) -> None:
    """Mean over ten divisions; the standard error of the difference is about a percent of the loss."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    kind = "binary" if name == "breast_cancer" else "squared"
    found = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(x))
        train, test = order[len(x) // 4 :], order[: len(x) // 4]
        found.append(
            losses(
                kind, Table(x[train], y[train].astype(float), ()), Table(x[test], y[test].astype(float), ()), 60, 0.05
            )
        )
    ours, lightgbms = np.mean(found, axis=0)
    error = np.std(np.diff(found, axis=1)) / np.sqrt(len(found))
    assert ours < 1.005 * lightgbms + 2 * error
