"""Folders of images: from `init` to predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_markets import bazaar, edit
from PIL import Image

from databazaar import load_run

pytestmark = pytest.mark.usefixtures("no_figures_here")


def pictures(folder: Path, rows: int, seed: int, wrong: float = 0.0) -> None:
    """A bright spot somewhere on a noisy ground, wide or high."""
    rng = np.random.default_rng(seed)
    for number in range(rows):
        wide = rng.random() < 0.5
        pixels = rng.normal(90, 20, (12, 12)).clip(0, 255)
        row, column = rng.integers(0, 8, 2)
        pixels[row : row + (1 if wide else 5), column : column + (5 if wide else 1)] = 250
        name = ("high", "wide")[int(wide ^ (rng.random() < wrong))]
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{number}.png")


def test_from_init_to_predictions(tmp_path: Path) -> None:
    folder = tmp_path / "market"
    for place, name in enumerate(("own", "north", "south", "noise")):
        pictures(folder / name, 160, place, 0.5 if name == "noise" else 0.0)
    told = bazaar("init", folder)
    assert told.code == 0 and "own judges; 3 providers; classification of 'label'" in told.out, told
    market = folder / "market.toml"
    text = market.read_text()
    assert 'kind = "convnet"' in text and "image = [1, 12, 12]" in text and 'kind = "in-run"' in text
    edit(market, "budget = 300", "budget = 36")
    checked = bazaar("check", market)
    assert checked.code == 0 and "image (1×12×12)" in checked.out, checked
    runs = [tmp_path / "run", tmp_path / "again"]
    for run in runs:
        told = bazaar("run", market, "--out", run, "--quiet")
        assert told.code == 0, told.err
    assert len({json.loads((run / "summary.json").read_text())["ledger_head"] for run in runs}) == 1
    pictures(tmp_path / "new", 100, 9)
    assert [bazaar(*args).code for args in (("audit", runs[0]), ("evaluate", runs[0], tmp_path / "new"))] == [0, 0]
    assert len(bazaar("predict", runs[0], tmp_path / "new").out.splitlines()) == 101
    bought = load_run(runs[0])
    assert bought.evaluate(bought.read_table(tmp_path / "new").frame)["accuracy"] > 0.85
    edit(market, "image = [1, 12, 12]", "image = [3, 6, 6]")
    assert "image (3×6×6)" in bazaar("check", market).out
    edit(market, 'kind = "convnet"', 'kind = "trees"')
    told = bazaar("check", market)
    assert told.code == 2
