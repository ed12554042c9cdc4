"""The ledger's file: append-only, one writer, and no byte of it can change unseen."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, BazaarError, LedgerError
from databazaar.ledger import Drawn, Ledger
from databazaar.ledger.sql import SqlStore
from databazaar.market.loop import play
from databazaar.runs.folder import LEDGER, MODEL, SUMMARY, RunFolder
from processes import Forked
from small_markets import MakeMarket


@pytest.fixture(scope="module")
def finished(make_vector_market: MakeMarket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    consumer, providers = make_vector_market(budget=12, oracles={3: lambda w: w * np.nan})
    Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8).run(path)
    return path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_finished_run_holds(finished: Path) -> None:
    audit = RunFolder(finished).audit()
    assert audit.ok, audit.first_broken
    assert audit.closed
    assert sorted(p.name for p in finished.iterdir()) == sorted([LEDGER, "model", SUMMARY, "run.json"])
    assert audit.head == RunFolder(finished).summary()["ledger_head"]
    assert RunFolder(finished).audit(head=audit.head).ok
    assert not RunFolder(finished).audit(head="0" * 64).ok


def flips(size: int) -> list[tuple[int, int]]:
    """All of the first 200 bytes, and 300 random ones; one random bit each."""
    rng = np.random.default_rng(1)
    offsets = [*range(200), *rng.choice(np.arange(200, size), 300, replace=False).tolist()]
    return [(offset, 1 << int(bit)) for offset, bit in zip(offsets, rng.integers(0, 8, len(offsets)), strict=True)]


@pytest.mark.slow
def test_flipping_any_byte_of_the_ledger_is_found(copied: Path) -> None:
    path = copied / LEDGER
    content = path.read_bytes()
    for offset, mask in flips(len(content)):
        changed = bytearray(content)
        changed[offset] ^= mask
        path.write_bytes(changed)
        audit = RunFolder(copied).audit()
        assert not audit.ok, f"byte {offset} ^ {mask} was not found"
        assert audit.first_broken
    path.write_bytes(content)
    assert RunFolder(copied).audit().ok


def test_flips_where_a_record_says_what_type_it_holds_are_found(copied: Path) -> None:
    """The stored state's record header: a blob that claims to be text, among others."""
    path = copied / LEDGER
    content = path.read_bytes()
    connection = sqlite3.connect(path)
    (blob,) = connection.execute("SELECT sampler FROM bazaar_snapshots").fetchone()
    connection.close()
    at = content.index(blob)
    for offset in range(at - 24, at + 4):
        for bit in range(8):
            changed = bytearray(content)
            changed[offset] ^= 1 << bit
            path.write_bytes(changed)
            assert not RunFolder(copied).audit().ok, (offset - at, bit)


def test_a_ledger_cut_off_or_emptied_is_found(copied: Path) -> None:
    path = copied / LEDGER
    content = path.read_bytes()
    for kept in (0, 1, 100, 4096, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:kept])
        assert not RunFolder(copied).audit().ok, kept
    path.write_bytes(content + b"\0")
    assert not RunFolder(copied).audit().ok


def test_a_finished_run_whose_close_was_taken_away_is_found(copied: Path) -> None:
    """The close may vanish with one flipped bit of its run's id: the ledger then looks merely unfinished."""
    path = copied / LEDGER
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER bazaar_no_DELETE")
    connection.execute("DELETE FROM bazaar_entries WHERE kind = 'close'")
    connection.commit()
    connection.close()
    assert not RunFolder(copied).audit().ok


def test_a_schema_that_is_not_text_any_more_is_found(copied: Path) -> None:
    path = copied / LEDGER
    content = path.read_bytes()
    first = content.index(b"CREATE TABLE bazaar_entries")
    for offset in range(first, first + 400, 3):
        changed = bytearray(content)
        changed[offset] ^= 128
        path.write_bytes(changed)
        assert not RunFolder(copied).audit().ok, offset


def test_a_changed_model_file_is_found(copied: Path) -> None:
    path = copied / MODEL
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert not RunFolder(copied).audit().ok


@pytest.mark.parametrize("field", ["ledger_head", "ledger_seal"])
def test_a_changed_summary_is_found(copied: Path, field: str) -> None:
    path = copied / SUMMARY
    path.write_text(path.read_text().replace(RunFolder(copied).summary()[field], "f" * 64))
    assert not RunFolder(copied).audit().ok


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE bazaar_entries SET amount = 9 WHERE seq = 1",
        "DELETE FROM bazaar_entries WHERE seq = 1",
        "INSERT OR REPLACE INTO bazaar_entries SELECT run, seq, kind, round, draw, provider, 9, body, hash "
        "FROM bazaar_entries WHERE seq = 1",
    ],
)
def test_the_database_itself_refuses_to_change_entries(copied: Path, statement: str) -> None:
    connection = sqlite3.connect(copied / LEDGER)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.rollback()
    connection.close()
    assert RunFolder(copied).audit().ok


def test_auditing_and_reporting_change_nothing(copied: Path) -> None:
    before = {p: p.read_bytes() for p in copied.rglob("*.*")}
    RunFolder(copied).audit()
    RunFolder(copied).report()
    assert {p: p.read_bytes() for p in copied.rglob("*.*")} == before


@pytest.mark.parametrize("name", ["with space", "run#1", "50%25", "what?", "zürich", "a&b=c"])
def test_any_folder_name_can_be_audited_and_reported(make_vector_market: MakeMarket, tmp_path: Path, name: str) -> None:
    consumer, providers = make_vector_market(budget=6)
    report = Arbiter(consumer, providers, engine="loop").run(tmp_path / name)
    folder = RunFolder(tmp_path / name)
    assert folder.audit().ok
    assert folder.report().ledger_head == report.ledger_head


def test_the_file_holds_the_same_ledger_as_memory(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    consumer, providers = make_vector_market()
    in_memory = Arbiter(consumer, providers, engine="loop").run()
    on_disk = Arbiter(consumer, providers, engine="loop").run(tmp_path / "run")
    assert in_memory.ledger_head == on_disk.ledger_head
    assert RunFolder(tmp_path / "run").report().payouts == in_memory.payouts


def test_two_writers_of_one_run_the_second_is_told(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    consumer, providers = make_vector_market()
    rules = Arbiter(consumer, providers, engine="loop").rules
    first = Ledger(rules, SqlStore.file(tmp_path / "l.sqlite", "run"))
    second = Ledger(rules, SqlStore.file(tmp_path / "l.sqlite", "run"))
    drawn = Drawn(np.array([0, 1, 2]), np.full(3, 0.25), rules.round_budget(first.book))
    first.reserve(0, drawn)
    with pytest.raises(LedgerError, match="another process has written this entry"):
        second.reserve(0, drawn)
    third = Ledger(rules, SqlStore.file(tmp_path / "l.sqlite", "run"))
    assert third.head == first.head
    assert len(third.book.reserved) == 3
    for ledger in (first, second, third):
        ledger.store.dispose()


WRITER = """
import sys
from pathlib import Path
import numpy as np
from databazaar import Arbiter, BazaarError, Consumer, Provider
consumer = Consumer(np.zeros(2), budget=160, per_round=2, utility=lambda w: float(np.exp(-(w ** 2).sum())))
try:
    Arbiter(consumer, [Provider("p", oracle=lambda w: np.ones(2))], engine="loop").run(Path(sys.argv[1]))
except BazaarError as reason:
    print("refused:", reason)
    sys.exit(7)
"""


@pytest.mark.slow
@pytest.mark.process
def test_two_processes_on_one_run_leave_one_whole_ledger(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    writers = [
        Forked(
            [sys.executable, "-W", "ignore", "-c", WRITER, str(folder.path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ends = []
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert "Traceback" not in err, err
        assert writer.returncode == 0 or "another process is playing" in out or "holds a finished run" in out, out
        ends.append((writer.returncode, out))
    assert [code for code, _ in ends].count(0) == 1, ends
    audit = folder.audit()
    assert audit.ok, audit.first_broken


@contextmanager
def full_disk() -> Iterator[None]:
    """Meanwhile no file of this process may grow, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_the_disk_is_full_nothing_of_a_step_is_kept_and_the_run_goes_on_later(
    make_vector_market: Any, tmp_path: Path
) -> None:
    arbiter = Arbiter(*make_vector_market(), engine="loop")
    expected = arbiter.run()
    folder = RunFolder.create(tmp_path / "run")
    store = folder.store()
    ledger = Ledger(arbiter.rules, store)
    drawn = Drawn(np.array([0, 1, 2]), np.full(3, 0.25), arbiter.rules.round_budget(ledger.book))
    with full_disk(), pytest.raises(LedgerError, match=r"the ledger cannot be written .*nothing of this step was kept"):
        ledger.reserve(0, drawn)
    assert [entry.kind for entry in store.entries()] == ["open"]

    ledger = Ledger(arbiter.rules, store)
    play(arbiter.begin(ledger), arbiter.engine)
    with full_disk(), pytest.raises(LedgerError, match=r"the ledger cannot be sealed .*then resume the run"):
        store.finish()
    assert not folder.finished
    folder.dispose()
    assert arbiter.run(folder.path).ledger_head == expected.ledger_head
    assert RunFolder(folder.path).audit().ok


def test_where_the_disk_is_full_no_folder_is_made(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(BazaarError, match=r"run\.json cannot be written .*choose another place"):
        RunFolder.create(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_not_finished_has_no_summary_and_one_without_a_model_does_not_hold(copied: Path) -> None:
    (copied / MODEL).unlink()
    assert "does not hold the model that the ledger names" in RunFolder(copied).audit().message
    (copied / MODEL).write_bytes(b"no safetensors")
    assert "does not hold the model that the ledger names" in RunFolder(copied).audit().message
    (copied / SUMMARY).unlink()
    with pytest.raises(BazaarError, match=r"holds no finished run: `bazaar run .*` goes on with it"):
        RunFolder(copied).summary()


def test_a_database_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BazaarError, match="cannot be opened"):
        SqlStore.file(tmp_path / "missing" / "l.sqlite", "run")
    with pytest.raises(BazaarError, match="cannot be opened"):
        SqlStore("nosuchdb://x", "run")


def test_the_end_of_a_run_waits_for_whoever_reads_its_ledger(make_vector_market: Any, tmp_path: Path) -> None:
    """A reader in the middle of a transaction keeps the file from being sealed until it is through."""
    arbiter = Arbiter(*make_vector_market(), engine="loop")
    folder = RunFolder.create(tmp_path / "run")
    ledger = Ledger(arbiter.rules, folder.store())
    play(arbiter.begin(ledger), arbiter.engine)
    reader = sqlite3.connect(tmp_path / "run" / "ledger.sqlite", check_same_thread=False)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM bazaar_entries").fetchone() > (0,)
    leaving = threading.Timer(0.5, reader.close)
    leaving.start()
    ledger.store.finish()
    leaving.join()
    folder.dispose()
    assert RunFolder(tmp_path / "run").audit().closed


def test_a_reader_that_does_not_leave_is_named(
    make_vector_market: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databazaar.ledger.sql.PATIENCE", 0)
    arbiter = Arbiter(*make_vector_market(), engine="loop")
    folder = RunFolder.create(tmp_path / "run")
    ledger = Ledger(arbiter.rules, folder.store())
    play(arbiter.begin(ledger), arbiter.engine)
    reader = sqlite3.connect(tmp_path / "run" / "ledger.sqlite")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM bazaar_entries").fetchone()
    with pytest.raises(LedgerError, match="close what else has it open, then resume the run"):
        ledger.store.finish()
    reader.close()
    ledger.store.finish()
    folder.dispose()
