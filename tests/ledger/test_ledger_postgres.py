"""Another database is only a URL: a real PostgreSQL server holds the same ledger with the same head."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from databazaar import OSMD, Arbiter, LedgerError
from databazaar.ledger import Drawn, Ledger
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from small_markets import MakeMarket

BINARIES = [Path("/usr/lib/postgresql/15/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]


def _binaries() -> Path:
    on_path = shutil.which("initdb")
    for folder in [*([Path(on_path).parent] if on_path else []), *BINARIES]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.fail("PostgreSQL's initdb and pg_ctl are not here: install the package `postgresql` to run this test")


def _as_user(command: list[str], user: str) -> None:
    """PostgreSQL refuses to run as root, so root runs it as somebody else."""
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if os.geteuid() == 0 else []
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, cwd="/", timeout=120)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    binaries = _binaries()
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    home = Path(tempfile.mkdtemp(prefix="bazaar-pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        shutil.chown(home, user)
    data = home / "data"
    try:
        _as_user([str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "bazaar", "--no-sync"], user)
        options = f"-k {home} -c listen_addresses= -c fsync=off"
        control = [str(binaries / "pg_ctl"), "-D", str(data), "-w"]
        _as_user([*control, "-l", str(home / "log"), "-o", options, "start"], user)
        try:
            yield f"postgresql+psycopg://bazaar@/postgres?host={home}"
        finally:
            _as_user([*control, "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def market(make_vector_market: MakeMarket) -> MakeMarket:
    return lambda **more: make_vector_market(budget=20, prices=[1, 2, 1, 1], oracles={3: lambda w: w * np.nan}, **more)


@pytest.mark.slow
def test_postgres_holds_the_same_ledger(server: str, market: MakeMarket, tmp_path: Path) -> None:
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
    assert play(RunFolder.create(tmp_path / "other", {"ledger_url": server})) == in_memory  # many runs, one database


@pytest.mark.slow
def test_postgres_entries_cannot_be_changed_and_have_one_writer(server: str, market: MakeMarket) -> None:
    consumer, providers = market()
    rules = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop").rules
    first, second = (Ledger(rules, SqlStore(server, "pair")) for _ in range(2))
    drawn = Drawn(np.array([0, 1, 2]), np.full(3, 0.25), rules.purse(first.book))
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
