"""Whoever keeps a database of ledgers: what is committed is durable, roles have the least rights, tables have a
version, and a backup is known by its heads. All of it with a real PostgreSQL server."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from cli_markets import bazaar

from databazaar import OSMD, Arbiter, BazaarError, LedgerError
from databazaar.canonical import GENESIS
from databazaar.ledger import Entry, Snapshot
from databazaar.ledger.schema import VERSION
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from postgres import Cutter, Server
from small_markets import MakeMarket

pytestmark = pytest.mark.process


@pytest.fixture
def server(postgres_server: Server) -> Server:
    return postgres_server


@pytest.fixture
def database(server: Server, request: pytest.FixtureRequest) -> str:
    """A new database for each test."""
    name = f"db_{abs(hash(request.node.name)) % 10**8}"
    _sql(server.url(), f"CREATE DATABASE {name}")
    return name


def _sql(url: str, *statements: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def _chain(length: int, head: str = GENESIS, start: int = 0) -> list[Entry]:
    entries = []
    for seq in range(start, start + length):
        entries.append(Entry(seq, "void", seq, 0, "p", 1, {"reason": "none"}).sealed(head))
        head = entries[-1].hash
    return entries


def _play(url: str, folder: Path, market: MakeMarket) -> str:
    consumer, providers = market(budget=20, prices=[1, 2, 1, 1])
    run = RunFolder.create(folder, {"ledger_url": url})
    return Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8).run(run).ledger_head


@pytest.mark.slow
def test_what_is_acknowledged_survives_a_crash_whatever_the_roles_default_is(server: Server, database: str) -> None:
    _sql(server.url(), f"ALTER DATABASE {database} SET synchronous_commit = off")
    store = SqlStore(server.url(database=database), "run")
    assert _sql(server.url(database=database), "SHOW synchronous_commit") == [("off",)]
    for entry in (entries := _chain(40)):
        store.append([entry], Snapshot(entry.seq, b"state", b"params"))
    server.crash()
    server.start()
    store.dispose()
    store = SqlStore(server.url(database=database), "run")
    assert list(store.entries()) == entries
    snapshot = store.snapshot()
    assert snapshot is not None and snapshot.next_round == 39
    store.dispose()


@pytest.mark.slow
def test_without_waiting_for_the_disk_the_same_crash_loses_entries(
    server: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: this is what it is about."""
    monkeypatch.setattr("databazaar.ledger.sql._wait_for_the_disk", lambda _connection: None)
    store = SqlStore(server.url(database=database), "run")
    _sql(server.url(), f"ALTER DATABASE {database} SET synchronous_commit = off")
    store.dispose()
    for entry in (entries := _chain(40)):
        store.append([entry], None)
    server.crash()
    server.start()
    store.dispose()
    assert len(list(store.entries())) < len(entries)
    store.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_a_commit_whose_answer_was_lost_is_called_unknown(
    server: Server, database: str, tmp_path_factory: pytest.TempPathFactory, kept: bool
) -> None:
    cutter = Cutter(server, tmp_path_factory.mktemp("c"))
    cutter.lets_through = kept
    store = SqlStore(server.url(database=database, home=cutter.home), "run")
    first, second = _chain(2)
    store.append([first], None)
    cutter.armed = True
    with pytest.raises(LedgerError, match=r"not known whether that was kept; `bazaar run` finds out") as told:
        store.append([second], None)
    assert "nothing of this step was kept" not in str(told.value)
    assert list(store.entries()) == ([first, second] if kept else [first])
    store.dispose()
    cutter.close()


def _wait_until_nobody_holds(url: str) -> None:
    """Until the server has noticed that the connection was cut which held a run."""
    held = sa.text(
        "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database "
        "WHERE locktype = 'advisory' AND datname = current_database()"
    )
    engine, end = sa.create_engine(url), time.monotonic() + 60
    with engine.connect() as connection:
        while connection.execute(held).scalar():
            assert time.monotonic() < end, "the server keeps the lock of a connection that is gone"
            time.sleep(0.005)
    engine.dispose()


@pytest.mark.slow
def test_a_run_whose_commit_was_lost_is_resumed_to_the_same_head(
    server: Server, database: str, make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    expected = _play(server.url(database=database), tmp_path / "whole", make_vector_market)
    home = tmp_path / "c"
    home.mkdir()
    cutter = Cutter(server, home)
    consumer, providers = make_vector_market(budget=20, prices=[1, 2, 1, 1])
    arbiter = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8)
    url = server.url(database=database, home=home)
    folder = RunFolder.create(tmp_path / "run", {"ledger_url": url})

    def arm(progress: object) -> None:
        cutter.armed = not cut
        cut.append(progress)

    cut: list[object] = []
    with pytest.raises(LedgerError, match="it is not known"):
        arbiter.run(folder, tell=arm)
    _wait_until_nobody_holds(server.url(database=database))
    assert arbiter.run(RunFolder(folder.path, url)).ledger_head == expected
    assert RunFolder(folder.path, url).audit().ok
    cutter.close()


@pytest.mark.slow
def test_roles_with_the_least_rights_play_and_audit_and_can_do_nothing_else(
    server: Server, database: str, make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    owner, writer, reader = (server.url(role, database) for role in ("bazaar", "plays", "audits"))
    roles = bazaar("ledger", "--roles", "--writer", "plays", "--reader", "audits", cwd=tmp_path)
    assert bazaar("ledger", owner, "--init", cwd=tmp_path).code == 0
    _sql(owner, *roles.out.split(";\n")[:-1])
    head = _play(writer, tmp_path / "run", make_vector_market)
    assert f" {head}" in bazaar("ledger", reader, cwd=tmp_path).out
    assert RunFolder(tmp_path / "run", reader).audit().ok
    forbidden = [
        "DELETE FROM bazaar_entries",
        "UPDATE bazaar_entries SET amount = 0",
        "TRUNCATE bazaar_entries",
        "DELETE FROM bazaar_snapshots",
        "UPDATE bazaar_schema SET version = 9",
        "DROP TRIGGER bazaar_no_update ON bazaar_entries",
        "ALTER TABLE bazaar_entries DISABLE TRIGGER ALL",
        "CREATE OR REPLACE FUNCTION bazaar_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "SET session_replication_role = replica",
        "DROP TABLE bazaar_entries",
        "CREATE TABLE mine (x int)",
    ]
    for role, more in ((writer, []), (reader, ["INSERT INTO bazaar_snapshots SELECT * FROM bazaar_snapshots"])):
        for statement in forbidden + more:
            with pytest.raises(sa.exc.ProgrammingError, match=r"permission denied|must be owner"):
                _sql(role, statement)


@pytest.mark.slow
def test_a_role_that_may_make_no_tables_is_told_who_may(server: Server, database: str) -> None:
    _sql(server.url(), "CREATE ROLE nobody LOGIN")
    with pytest.raises(
        BazaarError, match=r"this role may not make them: let their owner run `bazaar ledger URL --init`"
    ):
        SqlStore(server.url("nobody", database), "run")


@pytest.mark.slow
@pytest.mark.parametrize("other", [VERSION - 1, VERSION + 1])
def test_tables_of_another_version_are_refused(server: Server, database: str, tmp_path: Path, other: int) -> None:
    places: list[tuple[str, type[BazaarError]]] = [
        (server.url(database=database), BazaarError),
        (f"sqlite:///{tmp_path / 'l.sqlite'}", LedgerError),
    ]
    for url, refusal in places:
        store = SqlStore(url, "run")
        store.append(_chain(3), None)
        store.dispose()
        _sql(url, f"UPDATE bazaar_schema SET version = {other}")
        told = (
            rf"are of version {other}, and this databazaar knows version {VERSION}: use the databazaar that made them"
        )
        with pytest.raises(refusal, match=told):
            SqlStore(url, "run")
        reader = SqlStore(url, "run", create=False)
        with pytest.raises(refusal, match=told):
            list(reader.entries())
        reader.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_many_that_start_at_once_find_the_tables_made(server: Server, database: str, tmp_path: Path, kind: str) -> None:
    url = server.url(database=database) if kind == "postgresql" else f"sqlite:///{tmp_path / 'l.sqlite'}"
    failed: list[Exception] = []
    together = threading.Barrier(12)

    def start() -> None:
        together.wait()
        try:
            SqlStore(url, "run").dispose()
        except Exception as reason:
            failed.append(reason)

    starters = [threading.Thread(target=start) for _ in range(12)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert not failed
    assert _sql(url, "SELECT version FROM bazaar_schema") == [(VERSION,)]


@pytest.mark.slow
def test_a_backup_that_is_restored_has_the_heads_that_were_noted(
    server: Server, database: str, make_vector_market: MakeMarket, tmp_path: Path
) -> None:
    url = server.url(database=database)
    head = _play(url, tmp_path / "run", make_vector_market)
    _play(url, tmp_path / "other", make_vector_market)
    noted = bazaar("ledger", url, cwd=tmp_path)
    assert noted.code == 0 and noted.out.count(head) == 2
    (tmp_path / "heads.txt").write_text(noted.out)
    dump = server.home / f"{database}.dump"
    server.tool("pg_dump", "-h", str(server.home), "-U", "bazaar", "-Fc", "-f", str(dump), database)
    _sql(server.url(), f"CREATE DATABASE {database}_again")
    restored = server.url(database=f"{database}_again")
    server.tool("pg_restore", "-h", str(server.home), "-U", "bazaar", "-d", f"{database}_again", str(dump))
    assert bazaar("ledger", restored, "--heads", "heads.txt", cwd=tmp_path).out == noted.out
    for attack in ("UPDATE bazaar_entries SET amount = 0", "DELETE FROM bazaar_entries"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"):
            _sql(restored, attack)
    since = SqlStore(restored, "new")
    since.append(_chain(1), None)  # what has come since is no fault
    since.dispose()
    assert bazaar("ledger", restored, "--heads", "heads.txt", cwd=tmp_path).code == 0
    run = noted.out.split()[0]
    _sql(restored, "ALTER TABLE bazaar_entries DISABLE TRIGGER bazaar_no_delete")
    last = f"(SELECT max(seq) FROM bazaar_entries WHERE run = '{run}')"
    _sql(restored, f"DELETE FROM bazaar_entries WHERE run = '{run}' AND seq = {last}")
    cut = bazaar("ledger", restored, "--heads", "heads.txt", cwd=tmp_path)
    assert cut.code == 1 and "it was put back, or cut short" in cut.err
    _sql(restored, f"DELETE FROM bazaar_entries WHERE run = '{run}'")
    gone = bazaar("ledger", restored, "--heads", "heads.txt", cwd=tmp_path)
    assert gone.code == 1 and f"run {run} is not there any more" in gone.err


def test_a_keepers_mistakes_are_one_sentence(tmp_path: Path) -> None:
    empty = f"sqlite:///{tmp_path / 'empty.sqlite'}"
    for args, said in (
        ((empty,), "`bazaar ledger URL --init` makes them"),
        (("nosuchdb://x",), "check its URL"),
        ((f"postgresql+psycopg://x@/y?host={tmp_path}", "--init"), "start it, or check its URL"),
        ((), "give its URL"),
        ((empty, "--heads", "missing.txt"), "give a file that `bazaar ledger URL` printed"),
    ):
        done = bazaar("ledger", *args, cwd=tmp_path)
        assert done.code == 2 and said in done.err and "Traceback" not in done.err, done
    assert (
        bazaar("ledger", empty, "--init", cwd=tmp_path).out == f"the ledger's tables are there, of version {VERSION}\n"
    )
    (tmp_path / "heads.txt").write_text("not a head\n")
    assert bazaar("ledger", empty, "--heads", "heads.txt", cwd=tmp_path).code == 2


def test_a_chain_that_was_changed_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'l.sqlite'}"
    store = SqlStore(url, "run")
    store.append(_chain(5), None)
    store.dispose()
    noted = bazaar("ledger", url, cwd=tmp_path).out
    (tmp_path / "heads.txt").write_text(noted.replace(noted.split()[2], "f" * 64))
    other = bazaar("ledger", url, "--heads", "heads.txt", cwd=tmp_path)
    assert other.code == 1 and "its 5 entries are not those that were there before" in other.err
    with sqlite3.connect(tmp_path / "l.sqlite") as connection:
        connection.execute("DROP TRIGGER bazaar_no_UPDATE")
        connection.execute("UPDATE bazaar_entries SET amount = 0 WHERE seq = 2")
    connection.close()
    changed = bazaar("ledger", url, cwd=tmp_path)
    assert changed.code == 1 and "entry 2 (void, round 2, draw 0) does not follow" in changed.err
    strange = SqlStore(url, "a\x1b[2J")
    strange.append(_chain(1), None)
    strange.dispose()
    told = bazaar("ledger", url, cwd=tmp_path)
    assert told.code == 1 and "\x1b" not in told.out + told.err and r"a\x1b[2J" in told.err
