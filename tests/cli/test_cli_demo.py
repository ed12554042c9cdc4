"""`bazaar demo` in this process: what it buys, what that is worth, resumed from wherever it was stopped; and Ctrl-C."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_markets import Outcome, bazaar, contents, edit, write_market

from databazaar.data.fraud import BANKS
from databazaar.ledger import Entry, Snapshot
from databazaar.ledger.sql import SqlStore
from databazaar.market import purchase
from databazaar.runs.folder import RunFolder
from databazaar.runs.purchase import OWN, TITLES, UNIFORM, PurchaseEvaluation
from databazaar.vectors import hash_packed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_figures_here")]
BUDGET = "15"
INTERRUPTED = "bazaar: interrupted; `bazaar run demo` goes on with the run, `bazaar close demo` settles it here\n"


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


def test_what_each_bank_sells_is_shown_and_what_the_model_was_worth(played: tuple[Path, Outcome]) -> None:
    folder, done = played
    assert done.code == 0, done.err
    told = json.loads(bazaar("show", "demo", "statement", "--json", cwd=folder).out)
    for paid in told["providers"]:
        (line,) = [line.split() for line in done.out.splitlines() if line.strip().startswith(f"{paid['provider']} ")]
        assert line[1:3] == [str(paid["accesses"]), str(paid["pay"])]
        assert len(line) > 3, "what it sells is missing"
    worth = json.loads((folder / "demo/worth.json").read_text())
    assert (
        "Was it worth it? On 2,000 audit rows" in done.out and PurchaseEvaluation.from_dict(worth).verdict in done.out
    )
    for judged in (worth["bought"], *worth["others"]):
        (row,) = [line for line in done.out.splitlines() if line.strip().startswith(f"{TITLES[judged['kind']]}  ")]
        assert row.split()[-6 if judged["ahead"] is not None else -3 :][:3] == [
            f"{judged['metrics'][name]:.4f}" for name in ("accuracy", "log_loss", "auc")
        ]
    assert "about 3 rounds or more and 15 accesses, each on about 616 rows" in done.err and "it takes about" in done.err
    assert "bazaar audit demo" in done.out and "regret bound" not in done.out
    assert bazaar("audit", "demo", cwd=folder).code == 0
    assert not (folder / "demo/uniform").exists()


def test_a_finished_demo_is_only_shown_again(played: tuple[Path, Outcome], tmp_path: Path) -> None:
    shutil.copytree(played[0] / "demo", tmp_path / "demo")
    before = contents(tmp_path)
    quiet = bazaar("run", "demo", "--quiet", cwd=tmp_path)
    assert quiet == Outcome(0, "demo/report.html\n", "")
    told = json.loads(bazaar("run", "demo", "--json", cwd=tmp_path).out)
    assert contents(tmp_path) == before
    assert outcome_of(tmp_path / "demo").items() <= told.items()
    assert told["worth"] == json.loads((tmp_path / "demo/worth.json").read_text())
    assert "Was it worth it?" in (tmp_path / "demo/report.html").read_text()


@pytest.mark.parametrize("broken", [None, "{}"], ids=["gone", "unreadable"])
def test_a_finished_demo_that_was_not_judged_is_judged_again(
    played: tuple[Path, Outcome], tmp_path: Path, broken: str | None
) -> None:
    """As after a kill between the summary and the judgement."""
    shutil.copytree(played[0] / "demo", tmp_path / "demo")
    before = contents(tmp_path / "demo")
    (tmp_path / "demo/worth.json").unlink()
    if broken is not None:
        (tmp_path / "demo/worth.json").write_text(broken)
    bazaar("show", "demo", "report", cwd=tmp_path)
    assert "worth it" not in (tmp_path / "demo/report.html").read_text()
    assert bazaar("run", "demo", "--quiet", cwd=tmp_path) == Outcome(0, "demo/report.html\n", "")
    assert contents(tmp_path / "demo") == before


def test_with_its_shipped_budget_it_buys_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bought model beats own rows and uniform buying beyond chance, and the clean banks are paid most.

    No provider is tried alone: that is done in the short demo, and takes a third of the time of this one."""
    monkeypatch.setattr(purchase, "SINGLES", 0)
    done = bazaar("demo", "--out", "demo", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    worth = PurchaseEvaluation.from_dict(told["worth"])
    for kind in (OWN, UNIFORM):
        other = worth.against(kind)
        assert other is not None and other.ahead is not None and other.error is not None
        assert other.ahead > 2 * other.error, kind
        assert worth.bought.metrics["accuracy"] > other.metrics["accuracy"]
    assert worth.verdict.startswith("It was worth it: ")
    clean = {bank.id for bank in BANKS if bank.note in ("clean, same product", "clean, nearly the same product")}
    ranked = sorted(told["providers"], key=lambda paid: -paid["pay"])
    assert {paid["provider"] for paid in ranked[:3]} == clean
    assert sum(paid["pay"] for paid in ranked[:3]) > 0.75 * told["spent"]
    report = RunFolder(tmp_path / "demo").report()
    assert report.best is not None and report.best.utility == max(report.utilities)
    hashes = [
        hash_packed((tmp_path / "demo" / name / "model.safetensors").read_bytes())
        for name in ("model", "last" if (tmp_path / "demo/last").exists() else "model")
    ]
    assert hashes == [report.best.model, report.last_model_hash] and hashes[0] == told["model_hash"]


def test_interrupted_it_names_the_command_that_goes_on_to_the_same_end(
    played: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(3, patch)
        done = bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path)
    assert done == Outcome(130, "", INTERRUPTED)
    assert not (tmp_path / "demo/summary.json").exists()
    assert bazaar("run", "demo", "--quiet", cwd=tmp_path).code == 0
    assert outcome_of(tmp_path / "demo") == outcome_of(played[0] / "demo")
    judged = [folder / "demo/worth.json" for folder in (tmp_path, played[0])]
    assert judged[0].read_text() == judged[1].read_text()


def test_interrupted_while_it_is_judged_it_is_finished_and_can_be_judged_later(
    played: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("databazaar.config.play.judge_purchase", lambda *_, **__: signal.raise_signal(signal.SIGINT))
        done = bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path)
    said = "bazaar: interrupted; the run is settled; `bazaar run demo` says what it was worth\n"
    assert done == Outcome(130, "", said)
    assert outcome_of(tmp_path / "demo") == outcome_of(played[0] / "demo")
    assert bazaar("run", "demo", "--quiet", cwd=tmp_path).code == 0
    assert RunFolder(tmp_path / "demo").worth() is not None


def test_interrupted_it_can_be_closed_instead_and_keeps_the_best_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(4, patch)
        assert bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path).code == 130
    told = bazaar("close", "demo", cwd=tmp_path)
    assert told.code == 0 and "Who was paid what" in told.out and "back to the consumer" in told.out, told
    closed = outcome_of(tmp_path / "demo")
    assert closed["rounds"] < 3 and closed["stop"]["reason"] == {"code": "closed-by-consumer"}
    assert closed["spent"] + closed["refunded"] == int(BUDGET)
    assert bazaar("audit", "demo", cwd=tmp_path).code == 0
    assert json.loads(bazaar("show", "demo", "statement", "--json", cwd=tmp_path).out)["closed"]
    report = RunFolder(tmp_path / "demo").report()
    assert report.best is not None and report.best.utility == max(report.utilities)
    kept = hash_packed((tmp_path / "demo/model/model.safetensors").read_bytes())
    assert kept == report.best.model == closed["model_hash"]
    assert "there is nothing to close" in bazaar("close", "demo", cwd=tmp_path).complaint


def test_a_run_without_a_round_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupted_at(2, patch)
        bazaar("demo", "--budget", BUDGET, "--out", "demo", "--quiet", cwd=tmp_path)
    complaint = bazaar("close", "demo", cwd=tmp_path).complaint
    assert "no settled round yet" in complaint and "`bazaar run demo` goes on with it" in complaint


def test_what_cannot_be_resumed_is_only_interrupted(
    played: tuple[Path, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databazaar.reports.run_page.draw_all", lambda report: signal.raise_signal(signal.SIGINT))
    done = bazaar("show", played[0] / "demo", "report", "--out", tmp_path / "page.html")
    assert done == Outcome(130, "", "bazaar: interrupted\n")
    assert contents(tmp_path) == {}


def test_no_statement_is_made_of_a_run_that_does_not_hold(tmp_path: Path) -> None:
    """The chain is whole, so that a report could be made; but the model is another than the ledger names."""
    write_market(tmp_path, budget='"8.00"')
    assert bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=tmp_path).code == 0
    (tmp_path / "run/model/model.safetensors").unlink()
    before = contents(tmp_path / "run")
    done = bazaar("show", "run", "report", cwd=tmp_path)
    assert done.code == 1 and "says that the audit fails, and no statement is made: model/model.saf" in done.err
    now = contents(tmp_path / "run")
    assert [now[f"statement.{kind}"] for kind in ("csv", "json")] == [before[f"statement.{k}"] for k in ("csv", "json")]
    assert "Audit failed" in (tmp_path / "run" / "report.html").read_text()
    for more in ((), ("--json",), ("--csv",), ("--provider", "north"), ("--out", "statements")):
        done = bazaar("show", "run", "statement", *more, cwd=tmp_path)
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
