"""Jobs from market.toml: settings of the model and of the steps reach the market that is played."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cli_markets import PROVIDERS, bazaar, edit, table, write_market

from databazaar.config.jobs import from_recipe, market_job
from databazaar.config.market_data import load_data
from databazaar.config.market_file import load_market
from databazaar.errors import BazaarError
from databazaar.payments import PricePerRow
from databazaar.runs.folder import RunFolder
from databazaar.vectors import hash_packed


def model_hash(market: Path, halve_every: int | None, oracle: str = "") -> str:
    text = market.read_text()
    training = "" if halve_every is None else f"\n[training]\nhalve_every = {halve_every}\n"
    market.write_text(text + training + oracle)
    report = market_job(market).arbiter().run()
    market.write_text(text)
    return report.model_hash


@pytest.mark.parametrize("kind", ["local-sgd", "full-gradient"])
def test_steps_halve_as_often_as_the_market_says(tmp_path: Path, kind: str) -> None:
    market, oracle = write_market(tmp_path, budget='"8.00"'), f'\n[oracle]\nkind = "{kind}"\n'
    plain = model_hash(market, None, oracle)
    assert model_hash(market, 1000, oracle) == plain  # the run is over before
    assert len({plain, model_hash(market, 1, oracle), model_hash(market, 2, oracle)}) == 3


def test_providers_halve_their_own_steps_too(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    edit(market, "[engine]", "[training]\nhalve_every = 2\n\n[oracle]\nstep = 0.4\n\n[engine]")
    job = market_job(market)
    assert callable(job.consumer.step) and [job.consumer.step(t) for t in range(4)] == [1.0, 0.5, 0.5, 0.25]
    for provider in job.providers:
        step = provider.oracle.step  # type: ignore[union-attr]
        assert callable(step) and [step(t) for t in range(4)] == [0.4, 0.2, 0.2, 0.1]


def test_rows_become_the_images_that_a_cnn_takes(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"8.00"')
    edit(market, 'kind = "logistic"', 'kind = "cnn"\nimage = [2, 6, 6]')
    rng = np.random.default_rng(0)
    for name in ("holdout", *PROVIDERS):
        frame = pd.DataFrame(rng.normal(size=(20, 72)), columns=[f"c{i:02}" for i in range(72)])
        frame.assign(target=np.arange(20) % 2).to_csv(tmp_path / f"{name}.csv", index=False)
    job = market_job(market)
    own = [part for part in (job.consumer.train, job.consumer.holdout, job.consumer.audit) if part is not None]
    images = [part[0] for part in (*own, *(provider.dataset for provider in job.providers))]
    assert [x.shape for x in images if isinstance(x, torch.Tensor)] == [(n, 2, 6, 6) for n in (10, 6, 4, 20, 20, 20)]
    assert job.arbiter().run().status == "settled"


@pytest.mark.parametrize(
    ("train", "audit", "rows"),
    [
        ("", "", (40, 24, 16)),
        ("train = 0", "audit = 0.0", (0, 80, 0)),
        ("train = 0.25", "audit = 0.5", (20, 20, 40)),
        ("train = 0", "", (0, 64, 16)),
        ('train = "north.csv"', "", (40, 64, 16)),
        ("", 'audit = "later.csv"', (40, 40, 50)),
        ('train = "north.csv"', 'audit = "later.csv"', (40, 80, 50)),
    ],
)
def test_the_consumers_rows_have_three_purposes(tmp_path: Path, train: str, audit: str, rows: tuple[int, ...]) -> None:
    market = write_market(tmp_path, more=f"\n[consumer]\n{train}\n")
    edit(market, "[data]", f"[data]\n{audit}")
    pd.read_csv(tmp_path / "south.csv")[::-1].to_csv(tmp_path / "later.csv", index=False)
    data = load_data(load_market(market), tmp_path)
    parts = (data.train, data.holdout, data.audit)
    assert tuple(0 if part is None else len(part.y) for part in parts) == rows
    named = {"holdout.csv", *(f"{name}.csv" for name in PROVIDERS), *(["later.csv"] if "later" in audit else [])}
    assert set(data.digests) == named
    whole = load_data(load_market(write_market(tmp_path, more="\n[consumer]\ntrain = 0\n")), tmp_path)
    assert whole.schema == data.schema, "all of the hold-out says how tables are encoded"


def test_a_small_holdout_is_left_whole_unless_a_share_is_asked_for(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    table(19, 0, "classification").to_csv(tmp_path / "holdout.csv", index=False)
    data = load_data(load_market(market), tmp_path)
    assert (data.train, data.audit, len(data.holdout.y)) == (None, None, 19)
    edit(market, "[data]", "[data]\naudit = 0.5")
    asked = load_data(load_market(market), tmp_path)
    assert asked.audit is not None and len(asked.audit.y) + len(asked.holdout.y) == 19 and asked.train is None


@pytest.mark.parametrize(("section", "setting"), [("consumer", "train"), ("data", "audit")])
def test_a_file_of_own_rows_that_does_not_fit_is_named(tmp_path: Path, section: str, setting: str) -> None:
    market = write_market(tmp_path, more="\n[consumer]\n")
    edit(market, f"[{section}]", f'[{section}]\n{setting} = "own.csv"')
    table(30, 9, "classification").drop(columns="hour").to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises(BazaarError, match=rf"{section}\.{setting}: .*own\.csv.*'hour'.*rename"):
        market_job(market)


def test_pay_by_the_rows_that_an_access_uses(tmp_path: Path) -> None:
    """Prices of 0.50, 1.25 and 0.50 for each of 40, 50 and 60 rows; an ask of one mini-batch uses 32 of them."""
    market = write_market(tmp_path, budget='"800.00"', more='\n[payment]\nkind = "price-per-row"\n')
    edit(market, "[engine]", "[oracle]\nsteps = 1\n\n[engine]")
    job = market_job(market)
    assert job.payment == PricePerRow((32, 32, 32))
    edit(market, "steps = 1", "steps = 64")
    job = market_job(market)
    assert job.payment == PricePerRow((40, 50, 60))
    assert from_recipe(json.loads(json.dumps(job.recipe))).payment == job.payment
    report = job.arbiter().run()
    assert [p.pay for p in report.payouts] == [
        p.accesses * p.price * rows for p, rows in zip(report.payouts, (40, 50, 60), strict=True)
    ]
    assert report.spent > 0


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.usefixtures("no_figures")
def test_what_it_was_worth_is_what_evaluate_finds_on_the_audit_rows(tmp_path: Path, task: str) -> None:
    """Regression in the target's own units; and the best model is in model/, the last one in last/ if it is another."""
    market = write_market(tmp_path, task, budget='"8.00"')
    edit(market, "[data]", '[data]\naudit = "test.csv"')
    table(60, 9, task).to_csv(tmp_path / "test.csv", index=False)
    done = bazaar("run", market, "--out", tmp_path / "run", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert told["worth"]["rows"] == 60 and told["worth"]["task"] == task
    assert [other["kind"] for other in told["worth"]["others"]] == ["own-rows", "uniform", "single-provider"]
    found = json.loads(bazaar("evaluate", tmp_path / "run", tmp_path / "test.csv", "--json").out)
    for name, value in told["worth"]["bought"]["metrics"].items():
        assert found["metrics"][name] == pytest.approx(value, rel=1e-5), name
    report = RunFolder(tmp_path / "run").report()
    kept = {
        folder: hash_packed((tmp_path / "run" / folder / "model.safetensors").read_bytes())
        for folder in ("model", "last")
        if (tmp_path / "run" / folder).exists()
    }
    assert report.best is not None and report.best.utility == max(report.utilities)
    assert kept == {
        "model": report.best.model,
        **({} if report.best.model == report.last_model_hash else {"last": report.last_model_hash}),
    }
