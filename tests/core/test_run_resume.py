"""A run that is stopped anywhere and begun again ends in the same ledger head and the same model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from databazaar import OSMD, Arbiter, BazaarError, Consumer, LocalSGD, Provider
from databazaar.engines import Ask, Engine, LoopEngine, Replies
from databazaar.files import write_whole
from databazaar.learning.models import hash_vector
from databazaar.ledger import Entry, Snapshot
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import LEDGER, MODEL, SUMMARY, RunFolder
from databazaar.runs.model_folder import CARD, WEIGHTS


class PowerCutError(Exception):
    """Stands in for a kill: whatever was not committed is gone."""


def make_arbiter(seed: int = 3, engine: Engine | None = None) -> Arbiter:
    rng = np.random.default_rng(0)

    def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 2, n)
        return (rng.normal(size=(n, 3)) + y[:, None]).astype(np.float32), y

    providers = [Provider(f"p{i}", data=sample(8 + i), oracle=LocalSGD(0.2, 3), price=1 + i % 2) for i in range(4)]
    providers.append(Provider("broken", oracle=lambda w: w * np.nan))
    consumer = Consumer("logistic", holdout=sample(30), budget=40, per_round=3)
    if engine is None:
        return Arbiter(consumer, providers, OSMD(0.5, 0.2), engine="loop", device="cpu", seed=seed)
    return Arbiter(consumer, providers, OSMD(0.5, 0.2), engine=engine, seed=seed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    report = make_arbiter().run(path)
    return {"head": report.ledger_head, "model": report.model_hash, "file": (path / MODEL).read_bytes(), "path": path}


def assert_same(path: Path, arbiter: Arbiter, undisturbed: dict[str, Any]) -> None:
    summary = RunFolder(path).summary()
    assert summary["ledger_head"] == undisturbed["head"]
    assert summary["model_hash"] == undisturbed["model"] == hash_vector(arbiter.parameters)
    assert (path / MODEL).read_bytes() == undisturbed["file"]
    audit = RunFolder(path).audit()
    assert audit.ok, audit.first_broken


class FailingStore(SqlStore):
    """Dies at the Nth append: before anything is written, or right after the commit."""

    at, after, seen = 0, False, 0

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        FailingStore.seen += 1
        if FailingStore.seen == self.at and not self.after:
            raise PowerCutError
        super().append(entries, snapshot)
        if FailingStore.seen == self.at:
            raise PowerCutError


def appends(undisturbed: dict[str, Any]) -> int:
    """One transaction for the opening, one for each round, and one for the close."""
    return int(RunFolder(undisturbed["path"]).summary()["rounds"]) + 2


@pytest.mark.parametrize("after", [False, True])
def test_stopped_at_every_append(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    total = appends(undisturbed)
    assert total > 6
    for at in range(1, total + 1):
        path = tmp_path / f"run{at}"
        with monkeypatch.context() as patch:
            patch.setattr(FailingStore, "at", at)
            patch.setattr(FailingStore, "after", after)
            patch.setattr(FailingStore, "seen", 0)
            patch.setattr("databazaar.runs.folder.SqlStore", FailingStore)
            with pytest.raises(PowerCutError):
                make_arbiter().run(path)
        assert not RunFolder(path).finished
        arbiter = make_arbiter()
        arbiter.run(path)
        assert_same(path, arbiter, undisturbed)


def test_stopped_at_every_append_of_one_and_the_same_run(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A very bad day: every process gets exactly one transaction further."""
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(FailingStore, "at", 1)
        patch.setattr(FailingStore, "after", True)
        patch.setattr("databazaar.runs.folder.SqlStore", FailingStore)
        for _ in range(appends(undisturbed)):
            patch.setattr(FailingStore, "seen", 0)
            with pytest.raises(PowerCutError):
                make_arbiter().run(path)
    arbiter = make_arbiter()
    arbiter.run(path)
    assert_same(path, arbiter, undisturbed)


class MortalEngine(Engine):
    """The loop engine, until the lights go out in some round: before or after the providers have worked."""

    name, device = "loop", torch.device("cpu")

    def __init__(self, inner: LoopEngine, dies_in: int, late: bool) -> None:
        self._inner, self._dies_in, self._late = inner, dies_in, late

    def query(self, ask: Ask) -> Replies:
        replies = self._inner.query(ask) if self._late or ask.round != self._dies_in else None
        if ask.round == self._dies_in or replies is None:
            raise PowerCutError
        return replies

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("late", [False, True])
def test_stopped_while_providers_work(undisturbed: dict[str, Any], tmp_path: Path, late: bool) -> None:
    for round in range(appends(undisturbed) - 2):
        path = tmp_path / f"run{round}"
        inner = make_arbiter().engine
        assert isinstance(inner, LoopEngine)
        with pytest.raises(PowerCutError):
            make_arbiter(engine=MortalEngine(inner, round, late)).run(path)
        arbiter = make_arbiter()
        arbiter.run(path)
        assert_same(path, arbiter, undisturbed)


@pytest.mark.parametrize(
    "stage", ["write the model", "write the model's card", "finish the store", "write the summary"]
)
def test_stopped_between_the_close_and_the_summary(
    undisturbed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    path = tmp_path / "run"

    def cut(target: Path, content: bytes, **more: Any) -> None:
        if (stage, target.name) in {
            ("write the model", WEIGHTS),
            ("write the model's card", CARD),
            ("write the summary", SUMMARY),
        }:
            raise PowerCutError
        write_whole(target, content, **more)

    def no_finish(self: SqlStore) -> None:
        raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr("databazaar.runs.folder.write_whole", cut)
        patch.setattr("databazaar.runs.model_folder.write_whole", cut)
        if stage == "finish the store":
            patch.setattr(SqlStore, "finish", no_finish)
        with pytest.raises(PowerCutError):
            make_arbiter().run(path)
    assert not RunFolder(path).finished
    assert (path / MODEL).exists() == (stage != "write the model")
    arbiter = make_arbiter()
    arbiter.run(path)
    assert_same(path, arbiter, undisturbed)


def test_an_unfinished_run_can_be_audited_and_says_so(tmp_path: Path) -> None:
    inner = make_arbiter().engine
    assert isinstance(inner, LoopEngine)
    with pytest.raises(PowerCutError):
        make_arbiter(engine=MortalEngine(inner, 3, False)).run(tmp_path / "run")
    audit = RunFolder(tmp_path / "run").audit()
    assert audit.ok, audit.first_broken
    assert not audit.closed
    assert audit.rounds == 3
    assert "not finished" in audit.message
    report = RunFolder(tmp_path / "run").report()
    assert (report.status, report.closed, len(report.rounds)) == ("open", False, 3)
    assert "not finished" in report.message
    assert report.refunded == 0 and report.held > 0 and report.spent + report.held <= report.budget
    assert report.final_utility == report.rounds[-1].reached
    assert sum(payout.pay for payout in report.payouts) == report.spent
    assert report.distributions.shape == (4, 5)


def test_a_run_that_was_stopped_before_its_first_round_can_be_reported(tmp_path: Path) -> None:
    inner = make_arbiter().engine
    assert isinstance(inner, LoopEngine)
    with pytest.raises(PowerCutError):
        make_arbiter(engine=MortalEngine(inner, 0, False)).run(tmp_path / "run")
    report = RunFolder(tmp_path / "run").report()
    assert (report.status, report.rounds, report.spent) == ("open", [], 0)
    assert report.held > 0 and np.isnan(report.final_utility)


def test_changed_parameters_of_an_unfinished_run_are_found(tmp_path: Path) -> None:
    """What the next round starts from decides who is paid: it must not be changed between stop and resume."""
    import sqlite3

    inner = make_arbiter().engine
    assert isinstance(inner, LoopEngine)
    with pytest.raises(PowerCutError):
        make_arbiter(engine=MortalEngine(inner, 3, False)).run(tmp_path / "run")
    connection = sqlite3.connect(tmp_path / "run" / LEDGER)
    (params,) = connection.execute("SELECT params FROM bazaar_snapshots").fetchone()
    connection.execute("UPDATE bazaar_snapshots SET params = ?", (params[:-1] + bytes([params[-1] ^ 64]),))
    connection.commit()
    connection.close()
    assert not RunFolder(tmp_path / "run").audit().ok


def test_other_terms_do_not_continue_a_run(tmp_path: Path) -> None:
    inner = make_arbiter().engine
    assert isinstance(inner, LoopEngine)
    with pytest.raises(PowerCutError):
        make_arbiter(engine=MortalEngine(inner, 2, False)).run(tmp_path / "run")
    with pytest.raises(BazaarError, match="other terms"):
        make_arbiter(seed=4).run(tmp_path / "run")


def test_a_finished_run_is_not_run_again(undisturbed: dict[str, Any]) -> None:
    before = {p: p.read_bytes() for p in undisturbed["path"].rglob("*.*")}
    with pytest.raises(BazaarError, match="holds a finished run"):
        make_arbiter().run(undisturbed["path"])
    assert {p: p.read_bytes() for p in undisturbed["path"].rglob("*.*")} == before


def test_the_folder_and_its_recipe(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"market": {"budget": 5}})
    recipe = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recipe["market"] == {"budget": 5}
    assert recipe["id"] != RunFolder.create(tmp_path / "other").recipe["id"]
    assert folder.recipe == recipe
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "run"]  # no drafts are left behind
    with pytest.raises(BazaarError, match="exists already"):
        RunFolder.create(tmp_path / "run")


@pytest.mark.parametrize("text", [None, "", "not json", "[]", "{}", '{"id": null'])
def test_what_is_not_a_runs_folder_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(BazaarError, match="not a run's folder"):
        RunFolder(tmp_path)


def test_nothing_is_pickled(undisturbed: dict[str, Any]) -> None:
    from safetensors.numpy import load_file

    named = load_file(undisturbed["path"] / MODEL)
    assert sorted(named) == ["1.bias", "1.weight"]
    for path in undisturbed["path"].rglob("*.*"):
        assert b"\x80\x04" not in path.read_bytes()[:2], path
