"""What people read of a run is what its ledger says, or the audit says that it is not: each of these once passed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_markets import bazaar, edit

from databazaar.cli.pages import alike
from databazaar.ledger import Entry
from databazaar.runs.folder import RunFolder
from databazaar.vectors import pack, unpack
from hostile_folders import change_json, rewrite_ledger


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def open_run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "open"))


def broken(run: Path) -> str:
    """What the audit finds, which is not good."""
    found = RunFolder(run).audit()
    assert not found.ok
    return found.message


def seal_anew(run: Path, **changes: Any) -> None:
    """The summary as somebody writes it who has the whole folder."""
    seal = hashlib.sha256((run / "ledger.sqlite").read_bytes()).hexdigest()
    change_json(run / "summary.json", ledger_seal=seal, **changes)


def test_both_runs_hold_before_anybody_touches_them(finished: Path, stopped: Path) -> None:
    assert bazaar("audit", finished).code == 0 and RunFolder(stopped).audit().ok
    environment = json.loads(bazaar("audit", finished, "--json").out)["environment"]
    assert set(environment) == {"databazaar", "python", "torch", "numpy", "device", "threads"}
    page = (finished / "report.html").read_text()
    assert "played with" in page and f"torch {environment['torch']}" in page


def test_weights_under_other_names(run: Path) -> None:
    """The same numbers in the same order, so the same hash: only the names tell them apart."""
    path = run / "model" / "model.safetensors"
    weights = unpack(path.read_bytes())
    names = list(weights)
    path.write_bytes(pack(dict(zip(reversed(names), weights.values(), strict=True))))
    assert "model/model.safetensors has other names, shapes or another order of tensors" in broken(run)
    flat = {names[0]: weights[names[0]].reshape(-1), **{other: weights[other] for other in names[1:]}}
    path.write_bytes(pack(flat))
    assert "has other names, shapes" in broken(run)


SUMMARY_LIES = {
    "status": "nobody-answered",
    "stop": {"kind": "budget", "reason": {"code": "all-is-well"}},
    "model_hash": "0" * 64,
    "rounds": 1,
    "budget": 10**6,
    "spent": 1,
    "refunded": 123,
    "final_utility": 0.999,
    "final_loss": None,
}


@pytest.mark.parametrize("name", SUMMARY_LIES)
def test_a_summary_that_lies(run: Path, name: str) -> None:
    honest = json.loads((run / "summary.json").read_text())
    change_json(run / "summary.json", **{name: SUMMARY_LIES[name]})
    assert f"summary.json says {name} = " in broken(run)
    (run / "summary.json").write_text(json.dumps({key: honest[key] for key in honest if key != name}))
    assert f"summary.json says {name} = None" in broken(run)


@pytest.mark.parametrize("content", ["[]", "null", "{", "[" * 10**5, '{"ledger_head": ' + "9" * 5000 + "}"])
def test_a_summary_that_is_none(run: Path, content: str) -> None:
    (run / "summary.json").write_text(content)
    for command, *view in (["audit"], ["show"], ["show", "statement"], ["show", "report"]):
        done = bazaar(command, run, *view)
        assert done.code in (1, 2) and len((done.out + done.err).splitlines()) == 1, done
        assert "summary.json cannot be read: remove it, and" in done.out + done.err


def test_a_summary_that_is_gone_together_with_the_model(run: Path) -> None:
    """A run that was killed before its summary looks the same, but its weights would be right."""
    (run / "summary.json").unlink()
    assert RunFolder(run).audit().ok
    weights = unpack((run / "model/model.safetensors").read_bytes())
    (run / "model/model.safetensors").write_bytes(pack({name: array + 1 for name, array in weights.items()}))
    assert "does not hold the model that the ledger names" in broken(run)
    done = bazaar("run", run)
    assert done.code == 1 and "the ledger no longer has the model, so put the old file back" in done.err
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize("content", [None, b"\xff" * 100, pack({})], ids=["missing", "bad", "empty"])
def test_a_missing_or_bad_model_is_one_sentence(run: Path, content: bytes | None) -> None:
    (run / "summary.json").unlink()
    (run / "model/model.safetensors").unlink()
    if content is not None:
        (run / "model/model.safetensors").write_bytes(content)
    for command in ("run", "close"):
        done = bazaar(command, run, "--quiet")
        assert done.code in (1, 2) and len(done.err.splitlines()) == 1 and "model.safetensors" in done.err, done


@pytest.mark.parametrize("ended", [True, False])
def test_rounds_without_the_state_that_they_led_to(run: Path, open_run: Path, ended: bool) -> None:
    place = run if ended else open_run
    with closing(sqlite3.connect(place / "ledger.sqlite")) as database:
        database.execute("DELETE FROM bazaar_snapshots")
        database.commit()
    if ended:
        seal_anew(place)
    assert "the ledger has rounds, but not the state that they led to" in broken(place)


def last_scores(utility: Any) -> Callable[[list[Entry]], list[Entry]]:
    """The last round ends with this utility, and the close says so too."""

    def forge(entries: list[Entry]) -> list[Entry]:
        *before, last, close = entries
        return [
            *before,
            last._replace(body={**last.body, "reached": utility}),
            close._replace(body={**close.body, "utility": utility}),
        ]

    return forge


@pytest.mark.parametrize("utility", [7.5, -0.1, "0.9", "NaN", True, [0.9], 10**400])
def test_a_utility_that_is_none(run: Path, utility: Any) -> None:
    head = rewrite_ledger(run, last_scores(utility))
    seal_anew(run, ledger_head=head, final_utility=utility)
    assert "a utility lies outside of 0 to 1" in broken(run) or "a utility or a loss is not a number" in broken(run)


def test_a_close_that_names_another_model(run: Path) -> None:
    def forge(entries: list[Entry]) -> list[Entry]:
        return [*entries[:-1], entries[-1]._replace(body={**entries[-1].body, "model": "0" * 64})]

    seal_anew(run, ledger_head=rewrite_ledger(run, forge))
    assert "names another model than the last round ended with" in broken(run)


def test_a_statement_or_page_that_lies(run: Path) -> None:
    for name in ("report.html", "statement.json", "statement.csv"):
        edit(run / name, "north", "nowhere")
        done = bazaar("audit", run)
        assert done.code == 1 and f"BROKEN: {name} is not what follows from the ledger" in done.out
    assert bazaar("show", run, "report").code == 0 and bazaar("audit", run).code == 0  # they are written anew


def test_a_page_by_somebody_else_cannot_be_checked(run: Path) -> None:
    edit(run / "report.html", 'name="generator" content="databazaar ', 'name="generator" content="databazaar 9.')
    done = bazaar("audit", run)
    assert done.code == 3 and "another version wrote it, or somebody else" in done.err
    (run / "report.html").unlink()
    assert bazaar("audit", run).code == 0
    edit(run / "statement.csv", "north", "nowhere")
    assert bazaar("audit", run).code == 3
    (run / "statement.csv").unlink()
    (run / "statement.csv").symlink_to("/etc/hostname")
    done = bazaar("audit", run)
    assert done.code == 1 and "statement.csv is no plain file" in done.out


def test_pages_of_a_run_without_its_summary_are_not_taken_for_checked(run: Path) -> None:
    """Without the summary the run looked unfinished, and its pages as if of an earlier moment."""
    (run / "summary.json").unlink()
    (run / "statement.csv").write_text("all to me")
    done = bazaar("audit", run)
    assert done.code == 3 and "statement.csv, statement.json, report.html cannot be checked" in done.err


def test_pages_of_an_unfinished_run_are_said_not_to_be_compared_and_old_ones_are_no_lie(open_run: Path) -> None:
    assert bazaar("show", open_run, "report").code == 0
    done = bazaar("audit", open_run)
    assert done.code == 0 and "not compared, because the run is not finished: statement.csv" in done.out
    old = {name: (open_run / name).read_text() for name in ("statement.csv", "statement.json", "report.html")}
    assert bazaar("close", open_run, "--quiet").code == 0
    assert bazaar("audit", open_run).code == 0
    for name, text in old.items():  # as if it had been killed before it wrote them
        (open_run / name).write_text(text)
    done = bazaar("audit", open_run)
    assert done.code == 3 and "it is older than the run's end" in done.err


def test_another_machines_last_digits_are_no_lie(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors differ in the last digit of exp: on another one every honest run was called changed."""
    exact, here = np.exp, (run / "statement.json").read_text()
    monkeypatch.setattr(np, "exp", lambda x, *more, **how: exact(x, *more, **how) * (1 + 4e-16))
    assert bazaar("show", run, "report").code == 0
    written = (run / "statement.json").read_text()
    monkeypatch.undo()
    assert written != here and bazaar("audit", run).code == 0
    paid = re.search(r'"share_at_end": 0\.(\d{4})', written)
    assert paid is not None
    lie = f"0.{(int(paid[1]) + 1) % 10_000:04d}"
    (run / "statement.json").write_text(written.replace(f"0.{paid[1]}", lie, 1))
    assert bazaar("audit", run).code == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("pay 31", "pay 32"), ("31.00", "31.01"), ("5e999", "6e999"), ("0.5716434", "0.5716435"), ("a 1.5", "b 1.5")],
)
def test_other_numbers_are_not_alike(one: str, other: str) -> None:
    assert alike(one, one) and not alike(one, other)


def test_the_folder_may_be_called_otherwise(run: Path) -> None:
    assert bazaar("audit", run.rename(run.with_name("elsewhere"))).code == 0


def test_what_the_tables_were_like_cannot_be_rewritten(run: Path) -> None:
    edit(run / "profile.json", '"rows": 80', '"rows": 81')
    assert "profile.json has another profile than the ledger's first entry names" in broken(run)
    (run / "profile.json").unlink()
    assert "profile.json has another profile" in broken(run)


def test_preprocessing_cannot_be_rewritten_even_in_both_places(run: Path) -> None:
    recipe = json.loads((run / "run.json").read_text())
    schema = {**recipe["schema"], "target": "other"}
    change_json(run / "run.json", schema=schema)
    (run / "model/schema.json").write_text(json.dumps(schema))
    assert "run.json has another schema than the ledger's first entry names" in broken(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"tables": {"separator": None, "decimal": ",", "encoding": None, "missing": []}},
        {"classes": ["1", "0"]},
        {"model_hash": "0" * 64},
        {"architecture": {"kind": "mlp", "inputs": [3], "outputs": 2, "hidden": [7]}},
        {"format": "none"},
    ],
    ids=["tables", "classes", "hash", "architecture", "format"],
)
def test_how_the_model_is_used_cannot_be_rewritten(run: Path, changes: dict[str, Any]) -> None:
    """Another decimal sign, or other classes, and the same weights answer something else."""
    change_json(run / "model/model.json", **changes)
    assert "model.json" in broken(run)


def test_a_card_that_is_gone_and_one_of_a_later_version(run: Path) -> None:
    change_json(run / "model/model.json", format=2)
    assert bazaar("audit", run).code == 3
    (run / "model/model.json").unlink()
    assert "model.json is missing" in broken(run)


def test_the_last_model_is_looked_at_like_the_best(run: Path) -> None:
    shutil.copytree(run / "model", run / "last")
    assert RunFolder(run).audit().ok  # here they are the same
    change_json(run / "last/schema.json", target="another")
    assert broken(run).startswith("last/schema.json is not the preprocessing")
    (run / "last/schema.json").write_text("{")
    assert broken(run).startswith("last/schema.json is not the preprocessing")


def test_digests_of_data_cannot_be_rewritten(run: Path) -> None:
    recipe = json.loads((run / "run.json").read_text())
    change_json(run / "run.json", digests=dict.fromkeys(recipe["digests"], "0" * 64))
    assert "run.json tells of another market, consumer or data" in broken(run)


def test_an_old_ledger_put_back_is_noticed_by_the_summary(run: Path, open_run_ledger: Path) -> None:
    shutil.copy(open_run_ledger, run / "ledger.sqlite")
    seal_anew(run)
    assert not RunFolder(run).audit().ok


@pytest.fixture
def open_run_ledger(run: Path, tmp_path: Path) -> Path:
    """The ledger of the run as it was after its first round."""
    early = Path(shutil.copytree(run, tmp_path / "early"))
    at = 0

    def cut(entries: list[Entry]) -> list[Entry]:
        nonlocal at
        at = next(place for place, entry in enumerate(entries) if entry.kind == "round") + 1
        return entries[:at]

    rewrite_ledger(early, cut)
    return early / "ledger.sqlite"


def emptied(run: Path) -> None:
    for path in run.glob("ledger.sqlite*"):
        path.unlink()
    RunFolder.create(run.with_name("fresh"))
    shutil.copy(run.with_name("fresh") / "ledger.sqlite", run / "ledger.sqlite")


@pytest.mark.parametrize("gone", ["emptied", "removed"])
def test_an_emptied_ledger_does_not_begin_anew_in_silence(open_run: Path, gone: str) -> None:
    if gone == "emptied":
        emptied(open_run)
    else:
        for path in open_run.glob("ledger.sqlite*"):
            path.unlink()
    words = "is empty, though the run had begun" if gone == "emptied" else "is missing, though the run had begun"
    for command in ("audit", "run", "close"):
        done = bazaar(command, open_run)
        assert done.code == 1 and words in done.out + done.err, done
    assert words in broken(open_run)


def test_another_ledger_under_an_unfinished_run(open_run: Path) -> None:
    change_json(open_run / "begun.json", opening="0" * 64)
    assert "begun.json names another first entry than the ledger's" in broken(open_run)
    (open_run / "begun.json").write_text("[")
    assert "begun.json names another first entry" in broken(open_run)


def test_a_finished_run_without_its_ledger_is_not_one_that_has_none_yet(run: Path) -> None:
    (run / "ledger.sqlite").unlink()
    done = bazaar("audit", run)
    assert done.code == 1 and "ledger.sqlite is missing, though the run had begun" in done.out


def test_an_audit_writes_nothing(finished: Path, open_run: Path) -> None:
    for place in (finished, open_run):
        before = {path.name: path.stat().st_mtime_ns for path in place.rglob("*")}
        assert bazaar("audit", place).code == 0
        assert {path.name: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_a_run_that_goes_on_elsewhere_says_so(open_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("databazaar.config.play.__version__", "9.9")
    done = bazaar("run", open_run, "--quiet")
    assert done.code == 0 and RunFolder(open_run).audit().ok
    assert "the run goes on with databazaar 9.9: last digits may differ" in done.err
    assert json.loads((open_run / "resumed.json").read_text()) == ["databazaar 9.9"]
    report = RunFolder(open_run).report()
    assert "It went on with databazaar 9.9." in report.notes and report.environment["databazaar"] != "9.9"
    (open_run / "resumed.json").write_text('{"no": "list"}')
    assert RunFolder(open_run).resumed() == []
