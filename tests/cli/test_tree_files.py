"""A market.toml whose model is trees: from `check` to LightGBM."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest
from cli_markets import PROVIDERS, bazaar, edit, write_market

from databazaar import load_run
from databazaar.data.tree_features import TreeFeatures
from databazaar.learning.blend import Blend
from databazaar.learning.trees.ensemble import Ensemble

pytestmark = pytest.mark.usefixtures("no_figures_here")
CLASSES = ("gold", "iron", "zinc")
FEW_TREES = "[learner]\nrate = 0.4\n"
"""A run grows as many trees as it needs at its rate, however few its rounds are."""


def frame(rows: int, seed: int, task: str) -> pd.DataFrame:
    """Numbers, a date, two categories of which one has many values, and holes; the target needs all of them."""
    rng = np.random.default_rng(seed)
    amount, day = rng.lognormal(3, 0.5, rows), rng.integers(0, 300, rows)
    channel, town = rng.choice(["web", "shop", "phone"], rows), rng.integers(0, 12, rows)
    signal = np.log(amount) - 3 + 0.5 * (channel == "web") + 0.4 * (day > 150) - 0.5 * (town % 3 == 0)
    amount[rng.random(rows) < 0.1] = np.nan
    dates = (pd.Timestamp("2025-01-01") + pd.to_timedelta(day, "D")).strftime("%Y-%m-%d")
    target: object = np.round(10 * signal + 100, 3)
    if task == "classification":
        target = np.where(signal > 0.1, "yes", "no")
    if task == "classes":
        target = np.array(CLASSES)[np.digitize(signal, [-0.3, 0.4])]
    found = {"amount": amount.round(2), "day": dates, "channel": channel, "town": [f"t{place}" for place in town]}
    return pd.DataFrame({**found, "target": target})


def tree_market(folder: Path, more: str = "", task: str = "classification") -> Path:
    path = write_market(folder, "regression" if task == "regression" else "classification", budget='"6.00"')
    for place, name in enumerate(("holdout", *PROVIDERS)):
        frame(200 if name == "holdout" else 150, place, task).to_csv(folder / f"{name}.csv", index=False)
    of_model, rest = (more, "") if not more.startswith("[") else ("", more)
    edit(path, 'kind = "linear"' if task == "regression" else 'kind = "logistic"', f'kind = "trees"\n{of_model}')
    path.write_text(path.read_text() + rest)
    return path


@pytest.mark.parametrize("task", ["classification", "classes", "regression"])
def test_from_check_to_lightgbm(task: str, tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market", FEW_TREES, task)
    checked = bazaar("check", market)
    assert checked.code == 0 and "for a model of 6 features" in checked.out, checked
    assert bazaar("quote", market).code == 0
    runs = [tmp_path / "run", tmp_path / "again"]
    for run in runs:
        told = bazaar("run", market, "--out", run, "--quiet")
        assert told.code == 0, told.err
    assert len({json.loads((run / "summary.json").read_text())["ledger_head"] for run in runs}) == 1
    new = tmp_path / "new.csv"
    frame(300, 9, task).to_csv(new, index=False)
    assert [bazaar(*args).code for args in (("audit", runs[0]), ("evaluate", runs[0], new))] == [0, 0]
    assert len(bazaar("predict", runs[0], new).out.splitlines()) == 301
    assert "boosting" in (runs[0] / "report.html").read_text()
    bought = load_run(runs[0])
    assert bought.report.best is not None and bought.report.best.utility > bought.report.rounds[0].utility
    assert bought.trees is not None and bought.model is None

    assert "give --out model.txt" in bazaar("export", runs[0], "--out", tmp_path / "model.onnx").complaint
    told = bazaar("export", runs[0])
    assert told.code == 0 and "checked with lightgbm" in told.out, told
    theirs = lightgbm.Booster(model_file=str(runs[0] / "model.txt"))
    parts = [f"day_({part})" for part in ("days", "time_of_year", "time_of_week")]
    assert theirs.feature_name() == ["amount", "channel", "town", *parts]
    assert bought.schema is not None
    encoded = TreeFeatures(bought.schema).encode_features(pd.read_csv(new), "new.csv").astype(float)
    ours = bought.answers(pd.read_csv(new))
    answers = np.asarray(theirs.predict(encoded))
    assert np.allclose(answers, ours[:, 1] if task == "classification" else ours, rtol=1e-9, atol=1e-12)
    contributions = np.asarray(theirs.predict(encoded, pred_contrib=True))
    if task == "regression":
        assert np.allclose(contributions.sum(1), ours)
    assert isinstance(bought.trees, Ensemble)
    assert np.array_equal(theirs.feature_importance("split"), bought.trees.importance("split"))


@pytest.mark.parametrize("task", ["classification", "classes", "regression"])
def test_a_blend_is_bought_and_used(task: str, tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market", FEW_TREES, task)
    edit(market, 'kind = "trees"', 'kind = "auto"')
    assert [bazaar(*args).code for args in (("check", market), ("quote", market))] == [0, 0]
    runs = [tmp_path / "run", tmp_path / "again"]
    for run in runs:
        told = bazaar("run", market, "--out", run, "--quiet")
        assert told.code == 0, told.err
    assert len({json.loads((run / "summary.json").read_text())["ledger_head"] for run in runs}) == 1
    new = tmp_path / "new.csv"
    frame(300, 9, task).to_csv(new, index=False)
    assert [bazaar(*args).code for args in (("audit", runs[0]), ("evaluate", runs[0], new))] == [0, 0]
    assert len(bazaar("predict", runs[0], new).out.splitlines()) == 301
    assert "blending" in (runs[0] / "report.html").read_text()
    bought = load_run(runs[0])
    assert isinstance(bought.trees, Blend) and "linear" in str(bought)
    told = bazaar("export", runs[0])
    assert told.code == 2 and 'buy with model.kind = "trees"' in told.err


def test_directions_are_kept_in_files(tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market", 'rising = ["amount"]\n')
    assert bazaar("run", market, "--out", tmp_path / "run", "--quiet").code == 0
    rows = frame(1, 3, "classification").drop(columns="target")
    rows = rows.loc[[0] * 60].assign(amount=np.linspace(1, 90, 60)).reset_index(drop=True)
    assert (np.diff(load_run(tmp_path / "run").predict_proba(rows)["probability_yes"]) >= 0).all()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('rising = ["channel"]\n', "model.rising names 'channel', which is no column of numbers: take it out"),
        ('falling = ["nowhere"]\n', "model.falling names 'nowhere', which is no feature column: take it out"),
        ('[learner]\nkind = "in-run"\n', 'learner.kind = "in-run" does not train model.kind = "trees"'),
        ('[learner]\nkind = "averaging"\n', 'learner.kind = "averaging" does not train model.kind = "trees"'),
        ('[oracle]\nkind = "full-gradient"\n', 'oracle is for learner.kind = "averaging"'),
        ("[learner]\nleaves = 1\n", "learner.leaves = 1 must be between 2 and"),
        ("hidden = [3]\n", "model.hidden is for kind"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_sentence(more: str, sentence: str, tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market", more)
    told = bazaar("run", market, "--out", tmp_path / "run")
    assert told.code == 2 and sentence in told.err, told.err
    assert not (tmp_path / "run").exists()


def test_a_model_folder_that_was_changed_is_refused(tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market")
    assert bazaar("run", market, "--out", tmp_path / "run", "--quiet").code == 0
    card = tmp_path / "run" / "model" / "model.json"
    card.write_text(card.read_text().replace('"trees"', '"logistic"'))
    told = bazaar("predict", tmp_path / "run", tmp_path / "market" / "holdout.csv")
    assert told.code == 2 and len(told.err.splitlines()) == 1, told


def test_the_settings_say_which_learner_it_is(tmp_path: Path) -> None:
    market = tree_market(tmp_path / "market", "[learner]\nrate = 0.2\n")
    assert "kind" not in tomllib.loads(market.read_text())["learner"]
    assert bazaar("run", market, "--out", tmp_path / "run", "--quiet").code == 0
    learner = load_run(tmp_path / "run").report.rules["learner"]
    assert (learner["kind"], learner["rate"]) == ("boosting", 0.2)
