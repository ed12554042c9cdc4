"""A market.toml whose learner asks for rows, in-run or Newton's: from `check` to the model in use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_markets import bazaar, write_market

from databazaar import Defence, load_run

pytestmark = pytest.mark.usefixtures("no_figures_here")
IN_RUN = '\n[learner]\nkind = "in-run"\nrate = 0.005\n'
NEWTON = '\n[learner]\nkind = "newton"\n'


def in_run_market(folder: Path, more: str = "", task: str = "classification", learner: str = IN_RUN) -> Path:
    path = write_market(folder, task, budget='"20.00"')
    path.write_text(path.read_text() + learner + more)
    return path


@pytest.mark.parametrize(("kind", "learner"), [("in-run", IN_RUN), ("newton", NEWTON)])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_from_check_to_predictions(task: str, kind: str, learner: str, tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", task=task, learner=learner)
    assert bazaar("check", market).code == 0
    assert bazaar("quote", market).code == 0
    runs = [tmp_path / "run", tmp_path / "again"]
    for run in runs:
        told = bazaar("run", market, "--out", run, "--quiet")
        assert told.code == 0, told.err
    heads = {json.loads((run / "summary.json").read_text())["ledger_head"] for run in runs}
    assert len(heads) == 1
    holdout = tmp_path / "market" / "holdout.csv"
    assert [bazaar(*args).code for args in (("audit", runs[0]), ("evaluate", runs[0], holdout))] == [0, 0]
    assert len(bazaar("predict", runs[0], holdout).out.splitlines()) == 81
    report = load_run(runs[0]).report
    assert report.best is not None and report.best.utility >= report.rounds[0].utility
    assert report.rules["learner"]["kind"] == kind
    assert kind in (runs[0] / "report.html").read_text()


def test_a_defence_looks_at_rows(tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", '\n[defence]\nkind = "standard"\n')
    checked = bazaar("check", market)
    assert checked.code == 0 and "brought less than nothing" in checked.out and "updates" not in checked.out
    told = bazaar("run", market, "--out", tmp_path / "run", "--quiet")
    assert told.code == 0, told.err
    assert bazaar("audit", tmp_path / "run").code == 0
    defended = load_run(tmp_path / "run").report.defended
    assert defended is not None and defended.defence == Defence.named("standard").of_rows()


def test_pay_by_the_row_counts_the_rows_of_an_access(tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", 'rows = 45\n\n[payment]\nkind = "price-per-row"\n')
    market.write_text(market.read_text().replace("20.00", "900.00"))
    told = bazaar("run", market, "--out", tmp_path / "run", "--quiet")
    assert told.code == 0, told.err
    accesses = [one for played in load_run(tmp_path / "run").report.rounds for one in played.accesses]
    assert {(one.provider, one.paid) for one in accesses} == {(0, 40 * 50), (1, 45 * 125), (2, 45 * 50)}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('\n[oracle]\nkind = "full-gradient"\n', 'oracle is for learner.kind = "averaging"'),
        ('\n[aggregator]\nkind = "median"\n', 'aggregator is for learner.kind = "averaging"'),
        ("optimizer = 3\n", "set from Python alone"),
        ("rows = 0\n", "learner.rows = 0 must be between 1 and"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_sentence(more: str, sentence: str, tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", more)
    told = bazaar("run", market, "--out", tmp_path / "run")
    assert told.code == 2 and sentence in told.err, told.err
    assert not (tmp_path / "run").exists()


def test_a_provider_is_told_what_its_rows_have_brought(tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", "rows = 40\n")
    market.write_text(market.read_text().replace("[market]\n", "[market]\nvalues_rows = true\n"))
    run, plain = tmp_path / "run", tmp_path / "plain"
    assert bazaar("run", market, "--out", run, "--quiet").code == 0
    market.write_text(market.read_text().replace("values_rows = true", "values_rows = false"))
    assert bazaar("run", market, "--out", plain, "--quiet").code == 0
    heads = [json.loads((path / "summary.json").read_text())["ledger_head"] for path in (run, plain)]
    assert heads[0] == heads[1] and (run / "rows.safetensors").stat().st_mode & 0o077 == 0
    name = max(load_run(run).report.payouts, key=lambda payout: payout.accesses).provider
    said = ("show", run, "statement", "--provider", name, "--rows")
    lines = [line.split(",") for line in bazaar(*said).out.splitlines()]
    rows = json.loads(bazaar(*said, "--json").out)
    assert lines[0] == ["row", "times", "brought", "fit"] and len(lines) == len(rows["rows"]) + 1 > 10
    assert [str(value) for value in rows["rows"][0].values()] == lines[1] and rows["provider"] == name
    assert all(row["times"] > 0 for row in rows["rows"]) and bazaar("audit", run).code == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--provider", "nobody", "--rows"], "--provider nobody is not part of this run"),
        (["--rows"], "--rows are told to their provider alone"),
        (["--provider", "a", "--rows", "--out", "there"], "--rows are told to their provider alone"),
    ],
)
def test_rows_are_told_to_one_provider(more: list[str], words: str, tmp_path: Path) -> None:
    assert bazaar("run", in_run_market(tmp_path / "market"), "--out", tmp_path / "run", "--quiet").code == 0
    refused = bazaar("show", tmp_path / "run", "statement", *more)
    assert refused.code == 2 and words in refused.err
    name = load_run(tmp_path / "run").report.payouts[0].provider
    refused = bazaar("show", tmp_path / "run", "statement", "--provider", name, "--rows")
    assert refused.code == 2 and "this run has no values of rows" in refused.err
    refused = bazaar("show", tmp_path / "run", "--rows")
    assert refused.code == 2 and "the outcome has no --rows" in refused.err


def test_averaging_has_no_values_of_rows(tmp_path: Path) -> None:
    market = write_market(tmp_path / "market")
    market.write_text(market.read_text().replace("[market]\n", "[market]\nvalues_rows = true\n"))
    refused = bazaar("check", market)
    assert refused.code == 2 and "market.values_rows is for learners that train on rows" in refused.out


def test_the_markets_own_learner_values_providers(tmp_path: Path) -> None:
    market = in_run_market(tmp_path / "market", learner=NEWTON)
    told = bazaar("compare", market, "--methods", "in-run", "--json", "--out", tmp_path / "values")
    assert told.code == 0, told.err
    (found,) = json.loads(told.out)["methods"]
    assert found["trainings"] == 1 and found["results"][0]["method"] == "in-run"
