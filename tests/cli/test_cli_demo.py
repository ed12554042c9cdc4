"""`bazaar demo` in this process: two runs side by side, resumed from wherever they were stopped; and Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_markets import Outcome, bazaar, contents, edit, write_market

from databazaar.ledger import Entry, Snapshot
from databazaar.ledger.sql import SqlStore

BUDGET = "15"
INTERRUPTED = "bazaar: interrupted; `bazaar resume demo` goes on with the run, `bazaar close demo` settles it here\n"


@pytest.fixture(autouse=True, scope="module")
def no_figures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("databazaar.cli.play.save_png", lambda drawn, folder: [])
        yield


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A finished demo of three rounds in demo/, and what it printed; tests only read it."""
    folder = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        return folder, bazaar("demo", "--budget", BUDGET, "--out", "demo", cwd=folder)


def interrupted_at(append: int, patch: pytest.MonkeyPatch) -> None:
    """Presses Ctrl-C while the ledger is written for the nth time."""
    write, seen = SqlStore.append, 0

    def pressing(self: SqlStore, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        nonlocal seen
        seen += 1
        if seen == append:
            signal.raise_signal(signal.SIGINT)
        write(self, entries, snapshot)

    patch.setattr(SqlStore, "append", pressing)


def outcome_of(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key not in ("ledger_seal", "settled")}


def test_both_runs_are_shown_side_by_side_with_what_each_bank_sells(played: tuple[Path, Outcome]) -> None:
    folder, done = played
    assert done.code == 0, done.err
    told = json.loads(bazaar("statement", "demo", "--json", cwd=folder).out)
    other = json.loads(bazaar("statement", "demo/uniform", "--json", cwd=folder).out)
    uniform = {paid["provider"]: str(paid["pay"]) for paid in other["providers"]}
    for paid in told["providers"]:
        (line,) = [line.split() for line in done.out.splitlines() if line.strip().startswith(f"{paid['provider']} ")]
        assert line[1:4] == [str(paid["accesses"]), str(paid["pay"]), uniform[paid["provider"]]]
        assert len(line) > 4, "what it sells is missing"
    for name, run in (("OSMD", "demo"), ("uniform", "demo/uniform")):
        summary = outcome_of(folder / run)
        (line,) = [line.split() for line in done.out.splitlines() if line.strip().startswith(f"{name} ")]
        assert line[1:3] == [f"{summary['final_utility']:.4f}", f"{summary['final_loss']:.4f}"]
        assert line[3].endswith("%") and 0 < float(line[3][:-1]) <= 100
    assert "bazaar audit demo" in done.out and "regret bound (Theorem 1)" in done.out
    assert all(bazaar("audit", run, cwd=folder).code == 0 for run in ("demo", "demo/uniform"))


def test_a_finished_demo_is_only_shown_again(played: tuple[Path, Outcome], tmp_path: Path) -> None:
    shutil.copytree(played[0] / "demo", tmp_path / "demo")
    before = contents(tmp_path)
    quiet = bazaar("resume", "demo", "--quiet", cwd=tmp_path)
    assert quiet == Outcome(0, "demo/report.html\n", "")
    told = json.loads(bazaar("resume", "demo", "--json", cwd=tmp_path).out)
    assert contents(tmp_path) == before
    for name, run in (("osmd", "demo"), ("uniform", "demo/uniform")):
        summary = outcome_of(tmp_path / run)
        assert told[name]["final_utility"] == summary["final_utility"]
        assert told[name]["final_loss"] == summary["final_loss"]
        assert 0 < told[name]["test_accuracy"] <= 1


@pytest.mark.parametrize("append", [3, 7], ids=["in the run", "in the baseline"])
def test_interrupted_it_names_the_command_that_goes_on_to_the_same_end(
    played: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, append: int
) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(append, patch)
        done = bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path)
    assert done == Outcome(130, "", INTERRUPTED)
    assert (tmp_path / "demo/summary.json").exists() == (append == 7)
    assert bazaar("resume", "demo", "--quiet", cwd=tmp_path).code == 0
    for run in ("demo", "demo/uniform"):
        assert outcome_of(tmp_path / run) == outcome_of(played[0] / run)


@pytest.mark.parametrize("append", [4, 9], ids=["in the run", "in the baseline"])
def test_interrupted_it_can_be_closed_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, append: int) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(append, patch)
        assert bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path).code == 130
    told = bazaar("close", "demo", cwd=tmp_path)
    assert told.code == 0 and "Who was paid what" in told.out and "back to the consumer" in told.out, told
    closed = outcome_of(tmp_path / "demo" / ("uniform" if append == 9 else "."))
    assert closed["rounds"] < 3 and "the consumer closed it" in closed["message"]
    assert closed["spent"] + closed["refunded"] == int(BUDGET)
    assert bazaar("audit", "demo", cwd=tmp_path).code == 0
    assert json.loads(bazaar("statement", "demo", "--json", cwd=tmp_path).out)["closed"]
    assert "there is nothing to close" in bazaar("close", "demo", cwd=tmp_path).complaint


def test_a_run_without_a_round_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(2, patch)
        bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path)
    complaint = bazaar("close", "demo", cwd=tmp_path).complaint
    assert "no settled round yet" in complaint and "`bazaar resume demo` goes on with it" in complaint


def test_what_cannot_be_resumed_is_only_interrupted(
    played: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databazaar.cli.play.save_png", lambda drawn, folder: signal.raise_signal(signal.SIGINT))
    done = bazaar("report", played[0] / "demo", "--out", tmp_path / "page.html")
    assert done == Outcome(130, "", "bazaar: interrupted\n")
    assert contents(tmp_path) == {}


def test_no_statement_is_made_of_a_run_that_does_not_hold(tmp_path: Path) -> None:
    """The chain is whole, so that a report could be made; but the model is another than the ledger names."""
    write_market(tmp_path, budget='"8.00"')
    assert bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=tmp_path).code == 0
    (tmp_path / "run/model/model.safetensors").unlink()
    before = contents(tmp_path / "run")
    done = bazaar("report", "run", cwd=tmp_path)
    assert done.code == 1 and "says that the audit fails, and no statement is made: model/model.saf" in done.err
    now = contents(tmp_path / "run")
    assert [now[f"statement.{kind}"] for kind in ("csv", "json")] == [before[f"statement.{k}"] for k in ("csv", "json")]
    assert "Audit failed" in (tmp_path / "run" / "report.html").read_text()
    for more in ((), ("--json",), ("--csv",), ("--provider", "north"), ("--out", "statements")):
        done = bazaar("statement", "run", *more, cwd=tmp_path)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(
            "bazaar: no statement can be made, because the audit fails: model/model.safetensors does"
        )
    assert not (tmp_path / "statements").exists()


def test_the_progress_fits_a_terminal_of_eighty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a long title, large amounts and long names: whatever is too long is cut with a sign of it."""
    monkeypatch.setenv("COLUMNS", "80")
    market = write_market(tmp_path, budget='"800000.00"')
    stop = '[[stops]]\nkind = "target-utility"\nutility = -9.0\n\n[[providers]]'
    market.write_text(market.read_text().replace("[[providers]]", stop, 1))
    edit(market, 'name = "Small market"', 'name = "A market with a title that is far too long for one line"')
    done = bazaar("run", market, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert lines and all(len(line.rstrip()) <= 80 for line in lines)
    assert any(line.startswith("A market with a tit…") and "utility" in line and "-:--:--" in line for line in lines), (
        lines
    )
