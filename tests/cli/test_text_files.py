"""A folder of tables with a column of free text: from `init` to predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_markets import bazaar, edit

from databazaar import load_run
from databazaar.learning.blend import Blend

pytestmark = pytest.mark.usefixtures("no_figures_here")
GOOD, BAD = ("lovely", "sturdy", "fine", "quick"), ("broken", "late", "rude", "flimsy")
PLAIN = ("the", "parcel", "came", "box", "seller", "and", "colour", "size", "again", "blue")


def frame(rows: int, seed: int, wrong: float = 0.0) -> pd.DataFrame:
    """Reviews whose words tell whether they are good, with a number that tells a little, and missing cells."""
    rng = np.random.default_rng(seed)
    good = rng.random(rows) < 0.5
    review = [
        " ".join([*rng.choice(GOOD if one else BAD, 2), *rng.choice(PLAIN, rng.integers(4, 9))][::-1]) for one in good
    ]
    text = pd.Series([f"{words} {place}" for place, words in enumerate(review)]).where(rng.random(rows) > 0.1)
    stars = (good + rng.normal(size=rows)).round(2)
    return pd.DataFrame(
        {"review": text, "stars": stars, "label": np.where(good ^ (rng.random(rows) < wrong), "yes", "no")}
    )


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "reviews"
    folder.mkdir()
    for place, name in enumerate(("own", "north", "south", "noise")):
        frame(240, place, 0.5 if name == "noise" else 0.0).to_csv(folder / f"{name}.csv", index=False)
    return folder


def market_of(tmp_path: Path) -> Path:
    folder = folder_of(tmp_path)
    told = bazaar("init", folder)
    assert told.code == 0, told
    market = folder / "market.toml"
    assert "left out of `features`" not in market.read_text()
    edit(market, "budget = 300", "budget = 24")
    return market


def test_from_init_to_predictions(tmp_path: Path) -> None:
    market = market_of(tmp_path)
    checked = bazaar("check", market, "--json")
    read = {one["name"]: one for one in json.loads(checked.out)["profile"]["columns"]}
    (text,) = [one for one in read.values() if one["understood"] == "text"]
    assert checked.code == 0 and text["why"].startswith("by its words and pairs of words, "), checked
    runs = [tmp_path / "run", tmp_path / "again"]
    for run in runs:
        told = bazaar("run", market, "--out", run, "--quiet")
        assert told.code == 0, told.err
    assert len({json.loads((run / "summary.json").read_text())["ledger_head"] for run in runs}) == 1
    new = tmp_path / "new.csv"
    frame(300, 9).to_csv(new, index=False)
    assert [bazaar(*args).code for args in (("audit", runs[0]), ("evaluate", runs[0], new))] == [0, 0]
    assert len(bazaar("predict", runs[0], new).out.splitlines()) == 301
    bought = load_run(runs[0])
    assert isinstance(bought.trees, Blend) and bought.evaluate(pd.read_csv(new))["accuracy"] > 0.9
    model = tmp_path / "copied"
    (runs[0] / "model").rename(model)
    assert bazaar("evaluate", model, new).code == 0
    assert "lovely" not in "".join(path.read_text(errors="replace") for path in model.iterdir() if path.is_file())


@pytest.mark.parametrize("kind", ["trees", "logistic", "mlp"])
def test_other_models_take_texts_too(kind: str, tmp_path: Path) -> None:
    market = market_of(tmp_path)
    edit(market, 'kind = "auto"', f'kind = "{kind}"')
    learner = {"logistic": "newton", "mlp": "in-run"}.get(kind)
    market.write_text(market.read_text() + (f'\n[learner]\nkind = "{learner}"\n' if learner else ""))
    run = tmp_path / "run"
    told = bazaar("run", market, "--out", run, "--quiet")
    assert told.code == 0, told.err
    assert load_run(run).evaluate(frame(300, 9))["accuracy"] > 0.75


def test_market_toml_says_what_is_text(tmp_path: Path) -> None:
    market = market_of(tmp_path)
    edit(market, 'target = "label"', 'target = "label"\ncategorical = ["review"]')
    assert "hashed" in bazaar("check", market).out
    edit(market, 'categorical = ["review"]', 'text = ["stars"]')
    assert bazaar("check", market).out.count("text (by") == 2
    edit(market, 'text = ["stars"]', 'text = ["reviev"]')
    told = bazaar("check", market)
    assert told.code == 2 and "did you mean 'review'?" in told.err + told.out
