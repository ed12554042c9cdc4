"""The commands doing their work, on CSV and Parquet, for classes and for numbers."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import typer
from cli_markets import PROVIDERS, Outcome, bazaar, contents, edit, executable, write_market

from databazaar import __version__
from databazaar.cli.app import app
from databazaar.config.template import template

pytestmark = pytest.mark.slow

COMMANDS = (
    *("demo", "init", "check", "quote", "run", "close", "show", "audit", "ledger", "compare", "attack"),
    *("reproduce", "predict", "evaluate", "export"),
)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in EUR with unequal prices; tests only read it."""
    folder = tmp_path_factory.mktemp("settled")
    write_market(folder)
    done = bazaar("run", "market.toml", "--out", "run", "--json", cwd=folder)
    assert done.code == 0, done.err
    (folder / "told.json").write_text(done.out)
    return folder / "run"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_an_example_that_starts_with_the_command(command: str) -> None:
    told = bazaar(command, "--help")
    assert told.code == 0 and told.err == ""
    assert f"  bazaar {command}" in told.out.split("Examples:\n")[1]


def test_the_help_lists_all_commands_and_the_exit_codes() -> None:
    told = bazaar("--help")
    listed = re.findall(r"^  (\w+)  ", told.out.split("Commands:")[1], flags=re.MULTILINE)
    assert sorted(listed) == sorted([*COMMANDS, "federation", "jobs", "provider", "serve"])
    assert "Exit codes: 0" in told.out
    assert bazaar("-h").out == told.out


def test_there_are_at_most_40_commands_beside_those_of_other_packages() -> None:
    groups = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    leaves = sum(len(getattr(one, "commands", ())) or 1 for name, one in groups.items() if name != "reproduce")
    assert leaves + groups["serve"].invoke_without_command <= 40


def test_version() -> None:
    assert bazaar("--version") == Outcome(0, f"databazaar {__version__}\n", "")


def test_init_writes_the_template_and_says_what_next(tmp_path: Path) -> None:
    told = bazaar("init", "new/market", cwd=tmp_path)
    assert told.code == 0 and "bazaar run new/market/market.toml" in told.out
    assert contents(tmp_path).keys() == {"new", "new/market", "new/market/market.toml"}
    assert (tmp_path / "new/market/market.toml").read_text() == template()


def test_init_refuses_to_write_over_a_market(tmp_path: Path) -> None:
    (tmp_path / "market.toml").write_text("mine")
    for args in ((), ("--example",)):
        assert "market.toml: the file exists already: remove it" in bazaar("init", *args, cwd=tmp_path).complaint
    assert (tmp_path / "market.toml").read_text() == "mine"


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.usefixtures("no_figures")
def test_a_market_runs_on_users_files(tmp_path: Path, task: str, suffix: str) -> None:
    market = write_market(tmp_path, task, ".csv" if suffix == ".tsv" else suffix)
    if suffix == ".tsv":
        for file in tmp_path.glob("*.csv"):
            file.with_suffix(".tsv").write_text(file.read_text().replace(",", "\t"))
        edit(market, ".csv", ".tsv")
    done = bazaar("run", market, "--out", tmp_path / "run", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert told["status"] == "settled" and told["spent"] + told["refunded"] == 3000
    assert told["final_loss"] < 1.0 and 0 < told["final_utility"] <= 1
    assert bazaar("audit", tmp_path / "run").code == 0


@pytest.mark.usefixtures("no_figures")
def test_a_market_runs_on_files_that_nobody_prepared(tmp_path: Path) -> None:
    """Semicolons, decimal commas, dates, gaps, other columns, labels by name, and rows without one."""
    write_market(tmp_path)
    for path in tmp_path.glob("*.csv"):
        frame = pd.read_csv(path)
        frame["target"] = frame["target"].map({0: "no", 1: "yes"}).where(frame.index != 5)
        frame["since"] = [f"{1 + place % 28:02}.{1 + place % 12:02}.2024" for place in frame.index]
        frame["amount"] = frame["amount"].map("{:.2f} €".format).str.replace(".", ",").where(frame.index % 7 != 0)
        frame["channel"] = frame["channel"].where(frame.index % 9 != 0)
        if path.stem != "holdout":
            frame[f"only in {path.stem}"] = 1
        frame.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    done = bazaar("run", "market.toml", "--out", "run", cwd=tmp_path)
    assert done.code == 0, done
    assert done.err.count("rows without 'target' are left out") == done.err.count("is read as Windows-1252") == 1
    assert "note: holdout.csv (1 of 80 rows), " in done.err
    quiet = bazaar("run", "market.toml", "--out", "quiet", "--quiet", cwd=tmp_path)
    assert (quiet.code, quiet.err) == (0, "")


@pytest.mark.usefixtures("no_figures")
def test_the_same_tables_give_the_same_run_from_csv_and_from_parquet(settled: Path, tmp_path: Path) -> None:
    write_market(tmp_path, suffix=".parquet")
    again = json.loads(bazaar("run", "market.toml", "--out", "run", "--json", cwd=tmp_path).out)
    told = json.loads((settled.parent / "told.json").read_text())
    assert again["model_hash"] == told["model_hash"]
    assert again["ledger_head"] != told["ledger_head"]  # the files' digests stand in the first entry
    assert again["providers"] == told["providers"]


@pytest.mark.usefixtures("no_figures")
def test_engines_and_seeds_can_be_chosen_on_the_command_line(settled: Path, tmp_path: Path) -> None:
    market = write_market(tmp_path)
    loop = json.loads(bazaar("run", market, "--engine", "loop", "--out", tmp_path / "a", "--json").out)
    seed = json.loads(bazaar("run", market, "--seed", "4", "--device", "cpu", "--out", tmp_path / "b", "--json").out)
    told = json.loads((settled.parent / "told.json").read_text())
    assert loop["final_loss"] == pytest.approx(told["final_loss"], rel=1e-3)
    assert seed["ledger_head"] not in (told["ledger_head"], loop["ledger_head"])
    assert json.loads((tmp_path / "b/run.json").read_text())["market"]["market"]["seed"] == 4


def test_a_finished_folder_holds_the_outcome_and_no_drafts(settled: Path) -> None:
    held = contents(settled).keys()
    files = {"run.json", "ledger.sqlite", "model/model.safetensors", "summary.json", "report.html"}
    assert files | {"statement.csv", "statement.json", "figures"} <= held
    assert any(name.endswith(".png") for name in held)
    assert not any("partial" in name or name.endswith(("-wal", "-shm", "-journal")) for name in held)
    told, summary = (
        json.loads((settled.parent / "told.json").read_text()),
        json.loads((settled / "summary.json").read_text()),
    )
    assert summary.items() <= told.items()
    assert re.fullmatch("[0-9a-f]{64}", told["model_hash"]) and re.fullmatch("[0-9a-f]{64}", told["ledger_head"])


def test_json_and_statement_agree_and_sum(settled: Path) -> None:
    told = json.loads((settled.parent / "told.json").read_text())
    statement = json.loads(bazaar("show", settled, "statement", "--json").out)
    assert statement.items() <= told.items()
    prices = {p["provider"]: p["price"] for p in statement["providers"]}
    assert prices == dict(zip(PROVIDERS, [50, 125, 50], strict=True))
    pays = [p["pay"] for p in statement["providers"]]
    assert pays == sorted(pays, reverse=True)
    recipe = json.loads((settled / "run.json").read_text())
    assert (statement["run"], statement["began"]) == (recipe["id"], recipe["began"])
    began, ended = (dt.datetime.fromisoformat(statement[name]) for name in ("began", "settled"))
    assert began.tzinfo == dt.UTC and began <= ended
    for provider in statement["providers"]:
        assert provider["pay"] == provider["accesses"] * provider["price"]
        assert provider["pay_text"] == f"{provider['pay'] / 100:.2f} EUR"
    assert sum(p["pay"] for p in statement["providers"]) == statement["spent"]
    assert sum(o["pay"] for o in statement["owners"]) == statement["spent"]
    assert {o["owner"] for o in statement["owners"]} == {"compass", "far east"}
    accesses, rounds = sum(p["accesses"] for p in statement["providers"]), statement["rounds"]
    assert 4 * (rounds - 2) < accesses <= 4 * rounds  # only the last rounds are shortened to what fits
    assert statement["refunded"] < 50  # nobody was affordable any more
    assert statement["spent"] + statement["refunded"] == statement["budget"] == 3000
    assert statement["budget_text"] == "30.00 EUR"


def test_statement_as_csv_and_as_text(settled: Path) -> None:
    statement = json.loads(bazaar("show", settled, "statement", "--json").out)
    rows = list(csv.DictReader(io.StringIO(bazaar("show", settled, "statement", "--csv").out)))
    assert [row["provider"] for row in rows] == [p["provider"] for p in statement["providers"]]
    assert sum(int(row["pay"]) for row in rows) == statement["spent"]
    for row in rows:
        assert row["pay_amount"] == f"{int(row['pay']) / 100:.2f}" and row["currency"] == "EUR"
        assert {name: row[name] for name in ("market", "run", "began", "settled")}.items() <= statement.items()
    text = bazaar("show", settled, "statement").out
    market, run, *lines, _ = text.splitlines()
    assert market == statement["market"] and statement["run"] in run and statement["settled"] in run
    assert [line.split("  ")[0] for line in lines] == [row["provider"] for row in rows]
    assert f"budget 30.00 EUR, spent {statement['spent_text']}" in text
    assert (settled / "statement.csv").read_text() == bazaar("show", settled, "statement", "--csv").out
    assert json.loads((settled / "statement.json").read_text()) == statement


def test_a_providers_own_statement_lists_its_accesses_and_no_one_elses(settled: Path) -> None:
    everyone = json.loads(bazaar("show", settled, "statement", "--json").out)
    for whole in everyone["providers"]:
        mine = json.loads(bazaar("show", settled, "statement", "--provider", whole["provider"], "--json").out)
        assert {key: mine[key] for key in ("accesses", "pay", "owner", "price")} == {
            key: whole[key] for key in ("accesses", "pay", "owner", "price")
        }
        assert sum(item["paid"] for item in mine["items"]) == whole["pay"]
        assert mine.keys() & {"gains", "utility", "providers", "spent"} == set()
        rows = list(
            csv.DictReader(
                io.StringIO(bazaar("show", settled, "statement", "--provider", whole["provider"], "--csv").out)
            )
        )
        assert [int(row["paid"]) for row in rows] == [item["paid"] for item in mine["items"]]


def test_statement_out_writes_everybodys_csv_and_json(settled: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "statements"
    told = bazaar("show", settled, "statement", "--out", out)
    assert told.code == 0 and "8 files" in told.out
    assert len(list(out.glob("*.csv"))) == len(list(out.glob("*.json"))) == 4
    pays = [json.loads(file.read_text())["pay"] for file in out.glob("*.json") if file.stem != "statement"]
    assert sum(pays) == json.loads((out / "statement.json").read_text())["spent"]
    before = contents(out)
    assert "is not empty: give another folder" in bazaar("show", settled, "statement", "--out", out).complaint
    assert contents(out) == before


@pytest.mark.usefixtures("no_figures")
def test_statement_files_of_providers_with_similar_names_do_not_meet(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    edit(market, 'id = "north"', 'id = "far_east"')
    edit(market, 'id = "south"', 'id = "statement"')
    assert bazaar("run", market, "--out", tmp_path / "run").code == 0
    assert bazaar("show", tmp_path / "run", "statement", "--out", tmp_path / "out").code == 0
    told = [json.loads(file.read_text()) for file in sorted((tmp_path / "out").glob("*.json"))]
    assert sorted(one["provider"] for one in told if "provider" in one) == ["far east", "far_east", "statement"]
    assert sum("providers" in one for one in told) == 1


def test_report_writes_again_and_elsewhere(settled: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    first = (settled / "report.html").read_bytes()
    assert bazaar("show", settled, "report", "--out", page) == Outcome(0, f"{page}\n", "")
    assert page.read_bytes() == first
    assert b"Small market" in first and b"<html" in first.lower()


@pytest.mark.usefixtures("no_figures")
def test_the_default_folder_is_numbered_after_the_markets_name(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"8.00"')
    for number in (1, 2):
        done = bazaar("run", "market.toml", "--quiet", cwd=tmp_path)
        assert done.out == f"runs/small-market-{number}/report.html\n" and done.err == ""
    (tmp_path / "runs/small-market-1").rename(tmp_path / "runs/kept")
    assert "small-market-1/" in bazaar("run", "market.toml", "--quiet", cwd=tmp_path).out
    edit(market, '"Small market"', '"¿?"')
    assert bazaar("run", "market.toml", "--quiet", cwd=tmp_path).out == "runs/market-1/report.html\n"


@pytest.mark.usefixtures("no_figures")
def test_without_quiet_the_outcome_names_who_is_paid_and_the_files(tmp_path: Path) -> None:
    write_market(tmp_path)
    done = bazaar("run", "market.toml", "--out", "run", cwd=tmp_path)
    for words in (*PROVIDERS, "Who was paid what", "run/model ", "run/report.html", "bazaar audit run"):
        assert words in done.out
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("no_figures")
def test_resume_of_a_finished_run_changes_nothing_of_the_outcome(tmp_path: Path) -> None:
    write_market(tmp_path, budget='"8.00"')
    first = json.loads(bazaar("run", "market.toml", "--out", "run", "--json", cwd=tmp_path).out)
    before = contents(tmp_path)
    again = bazaar("run", "run", "--json", cwd=tmp_path)
    assert (again.code, again.err) == (0, "") and json.loads(again.out) == first
    assert contents(tmp_path) == before


def test_audit_as_text_and_json_and_with_a_noted_head(settled: Path) -> None:
    told = json.loads((settled.parent / "told.json").read_text())
    before = contents(settled)
    text = bazaar("audit", settled)
    assert text.code == 0 and text.out.startswith("ok: ") and "settled and closed" in text.out
    found = json.loads(bazaar("audit", settled, "--json", "--head", told["ledger_head"]).out)
    assert found["ok"] and found["closed"] and found["ledger_head"] == told["ledger_head"]
    assert found["rounds"] == told["rounds"]
    other = bazaar("audit", settled, "--head", "0" * 64)
    assert other.code == 1 and other.out.startswith("BROKEN: ") and "not in the head you gave" in other.out
    assert contents(settled) == before, "an audit writes nothing"


@pytest.mark.usefixtures("no_figures")
def test_a_market_in_which_every_update_explodes_ends_cleanly_with_exit_code_3(tmp_path: Path) -> None:
    """A learning rate far too large: local training diverges to infinity at every provider."""
    market = write_market(
        tmp_path, "regression", budget='"90.00"', more="\n[oracle]\nstep = 1e12\nbatch_size = 4\nepochs = 5\n"
    )
    done = bazaar("run", market, "--out", tmp_path / "run", "--json")
    assert done.code == 3
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("bazaar: nobody gave a valid reply in the last 10 rounds")
    told = json.loads(done.out)
    assert (told["status"], told["spent"], told["refunded"]) == ("nobody-answered", 0, 9000)
    assert sum(p["failures"] for p in told["providers"]) == 40
    assert bazaar("audit", tmp_path / "run").code == 0
    assert bazaar("run", tmp_path / "run", "--quiet").code == 3
    mine = json.loads(bazaar("show", tmp_path / "run", "statement", "--provider", "north").out)
    reasons = {item["failure"] for item in mine["items"]}
    assert mine["pay"] == 0
    assert reasons == {"not-finite", "quarantined"}


@pytest.mark.process
def test_the_real_executable_runs_audits_and_finds_a_flipped_byte(tmp_path: Path) -> None:
    write_market(tmp_path, budget='"8.00"')
    done = executable("run", "market.toml", "--out", "run", "--json", cwd=tmp_path, draws=True)
    assert (done.code, done.err) == (0, ""), done.err
    assert list((tmp_path / "run" / "figures").glob("*.png"))
    ledger = tmp_path / "run" / "ledger.sqlite"
    whole = ledger.read_bytes()
    place = whole.index(b'"utility":') + len(b'"utility":0.')
    ledger.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    found = executable("audit", "run", cwd=tmp_path)
    assert found.code == 1 and found.err == ""
    assert re.match(r"BROKEN: entry \d+ \(", found.out), found.out
    ledger.write_bytes(whole)
    assert bazaar("audit", "run", cwd=tmp_path).code == 0


@pytest.mark.parametrize("part", range(8))
def test_any_flipped_byte_of_the_ledger_is_found(settled: Path, tmp_path: Path, part: int) -> None:
    """One byte in each eighth of the file, the first of all among them."""
    copy = tmp_path / "run"
    shutil.copytree(settled / "model", copy / "model")
    for name in ("run.json", "summary.json"):
        (copy / name).write_bytes((settled / name).read_bytes())
    whole = (settled / "ledger.sqlite").read_bytes()
    place = part * (len(whole) // 8)
    (copy / "ledger.sqlite").write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    found = bazaar("audit", copy)
    assert found.code == 1 and found.out.startswith("BROKEN: ") and found.err == ""


@pytest.mark.usefixtures("no_figures")
def test_a_changed_model_or_a_damaged_summary_is_found_and_mended(settled: Path, tmp_path: Path) -> None:
    shutil.copytree(settled.parent, tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    model = (run / "model/model.safetensors").read_bytes()
    (run / "model/model.safetensors").write_bytes(model[:-1] + bytes([model[-1] ^ 1]))
    found = bazaar("audit", run)
    assert found.code == 1 and "model/model.safetensors" in found.out
    (run / "model/model.safetensors").write_bytes(model)
    (run / "summary.json").write_text("{")
    assert "summary.json cannot be read: remove it" in bazaar("audit", run).complaint
    (run / "summary.json").unlink()
    assert bazaar("run", run, "--quiet").code == 0
    assert bazaar("audit", run).code == 0
    told = json.loads((settled / "summary.json").read_text())
    assert json.loads((run / "summary.json").read_text())["model_hash"] == told["model_hash"]


def test_a_run_of_the_papers_sampler_prints_its_bound(tmp_path: Path) -> None:
    write_market(tmp_path, budget='"8.00"')
    market = tmp_path / "market.toml"
    market.write_text(market.read_text().replace('price = "1.25"', 'price = "0.50"'))
    assert "regret bound (Theorem 1)" in bazaar("run", market, "--out", tmp_path / "run").out
    below = bazaar("run", tmp_path / "north.csv" / "market.toml")
    assert below.code == 2 and "cannot be read" in below.err
