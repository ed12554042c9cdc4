"""Another database is only a URL: a real PostgreSQL server holds the same ledger with the same head."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from databazaar import OSMD, Arbiter, BazaarError, LedgerError, Progress
from databazaar.ledger import Drawn, Ledger, sql
from databazaar.ledger.sql import SqlStore
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from postgres import Server
from small_markets import MakeMarket

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABAZAAR_LEDGER_URL", postgres_server.url())  # a folder's own word is not enough
        yield postgres_server.url()


@pytest.fixture
def market(make_vector_market: MakeMarket) -> MakeMarket:
    return lambda **more: make_vector_market(budget=20, prices=[1, 2, 1, 1], oracles={3: lambda w: w * np.nan}, **more)


@pytest.mark.slow
def test_postgres_holds_the_same_ledger(
    server: str, market: MakeMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(folder: RunFolder | None) -> str:
        consumer, providers = market()
        return Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8).run(folder).ledger_head

    in_memory = play(None)
    folder = RunFolder.create(tmp_path / "run", {"ledger_url": server})
    assert play(folder) == in_memory
    assert not (tmp_path / "run" / "ledger.sqlite").exists()
    audit = RunFolder(tmp_path / "run").audit()
    assert audit.ok, audit.first_broken
    assert audit.head == in_memory
    assert RunFolder(tmp_path / "run").report().ledger_head == in_memory
    for size in (1, 5, audit.entries):  # however many entries are read at once
        monkeypatch.setattr(sql, "PAGE", size)
        assert RunFolder(tmp_path / "run").audit().head == in_memory
    assert play(RunFolder.create(tmp_path / "other", {"ledger_url": server})) == in_memory  # many runs, one database


@pytest.mark.slow
def test_postgres_entries_cannot_be_changed_and_have_one_writer(server: str, market: MakeMarket) -> None:
    consumer, providers = market()
    rules = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop").rules
    first, second = (Ledger(rules, SqlStore(server, "pair")) for _ in range(2))
    drawn = Drawn(np.array([0, 1, 2]), np.full(3, 0.25), rules.round_budget(first.book))
    first.reserve(0, drawn)
    with pytest.raises(LedgerError, match="another process"):
        second.reserve(0, drawn)
    before = list(first.store.entries())
    engine = sa.create_engine(server)
    for attack in ("UPDATE bazaar_entries SET amount = 0", "DELETE FROM bazaar_entries", "TRUNCATE bazaar_entries"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.exec_driver_sql(attack)
    assert list(first.store.entries()) == before
    engine.dispose()
    for ledger in (first, second):
        ledger.store.dispose()


@pytest.mark.slow
def test_postgres_lets_one_process_play_a_run(server: str, market: MakeMarket, tmp_path: Path) -> None:
    """Also from another folder, as on another machine; whoever leaves, however, makes way for the next."""
    consumer, providers = market()
    first = RunFolder.create(tmp_path / "run", {"ledger_url": server})
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    first.store()
    with pytest.raises(BazaarError, match="another process is playing this run"):
        RunFolder(tmp_path / "copy").store()
    other = RunFolder.create(tmp_path / "other", {"ledger_url": server})
    other.store()  # another run of the same database
    other.dispose()
    first.dispose()
    arbiter = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8)
    refused: list[object] = []

    def intrude(progress: object) -> None:
        with pytest.raises(BazaarError, match="another process is playing this run"):
            close_run(tmp_path / "copy")
        refused.append(progress)

    report = arbiter.run(tmp_path / "run", tell=intrude)
    assert len(refused) == len(report.rounds) and RunFolder(tmp_path / "run").audit().ok


@pytest.mark.slow
def test_a_run_in_postgres_is_closed_by_its_consumer(server: str, market: MakeMarket, tmp_path: Path) -> None:
    consumer, providers = market()
    run = RunFolder.create(tmp_path / "run", {"ledger_url": server})

    def stop(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8).run(run, tell=stop)
    report = close_run(tmp_path / "run")
    assert len(report.rounds) == 3 and report.spent + report.refunded == report.budget
    assert RunFolder(tmp_path / "run").audit().ok


def test_a_server_that_is_away_says_nothing_about_the_ledger(tmp_path: Path) -> None:
    away = f"postgresql+psycopg://bazaar@/postgres?host={tmp_path}"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"id": "a" * 32, "ledger_url": away}))
    run = RunFolder(tmp_path / "run", away)
    for ask in (run.audit, run.report, run.need_rules):
        with pytest.raises(BazaarError, match=r"database cannot be reached .*: start it, or check its URL") as told:
            ask()
        assert not isinstance(told.value, LedgerError)
    with pytest.raises(BazaarError, match="cannot be opened"):
        close_run(run)
    store = SqlStore(away, "run", create=False)
    with pytest.raises(BazaarError, match="database cannot be reached"):
        store.hold()
