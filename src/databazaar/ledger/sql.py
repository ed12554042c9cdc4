"""The ledger in a database: SQLite by default, any other that SQLAlchemy knows by its URL."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.ledger.chain import KINDS, Entry, canonical
from databazaar.ledger.store import Snapshot, Store

_meta = sa.MetaData()

PATIENCE = 100
"""Tenths of a second for which the end of a run waits for readers."""

BEING_PLAYED = "another process is playing this run: wait for it, or stop it first"

ENTRIES = sa.Table(
    "bazaar_entries",
    _meta,
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("round", sa.BigInteger),
    sa.Column("draw", sa.BigInteger),
    sa.Column("provider", sa.Text),
    sa.Column("amount", sa.BigInteger),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.CheckConstraint("amount >= 0", name="bazaar_amount_not_negative"),
    sa.UniqueConstraint("run", "kind", "round", "draw", name="bazaar_one_per_access"),
)

SNAPSHOTS = sa.Table(
    "bazaar_snapshots",
    _meta,
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("next_round", sa.BigInteger, nullable=False),
    sa.Column("sampler", sa.LargeBinary, key="state", nullable=False),  # the name that it has had since format 1
    sa.Column("params", sa.LargeBinary, nullable=False),
)

_APPEND_ONLY = {
    "sqlite": "CREATE TRIGGER bazaar_no_{verb} BEFORE {verb} ON bazaar_entries "
    "BEGIN SELECT RAISE(ABORT, 'ledger entries are append-only'); END",
    "postgresql": "CREATE TRIGGER bazaar_no_{verb} BEFORE {verb} ON bazaar_entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION bazaar_refuse()",
}
_BEFORE = {
    "sqlite": "CREATE TRIGGER bazaar_no_replace BEFORE INSERT ON bazaar_entries "
    "WHEN EXISTS (SELECT 1 FROM bazaar_entries WHERE run = NEW.run AND seq = NEW.seq) "
    "BEGIN SELECT RAISE(ABORT, 'ledger entries are append-only'); END",
    "postgresql": "CREATE FUNCTION bazaar_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'ledger entries are append-only'; END $$",
}
"""The database holds everybody to it, not only this program, that entries are written once."""


def _forbid_changes(_table: Any, connection: sa.Connection, **_: Any) -> None:
    dialect = connection.dialect.name
    rule = _APPEND_ONLY.get(dialect)
    if rule:
        connection.exec_driver_sql(_BEFORE[dialect])
    for verb in ("UPDATE", "DELETE", *(["TRUNCATE"] if dialect == "postgresql" else [])) if rule else ():
        connection.exec_driver_sql(str(rule).format(verb=verb))


sa.event.listen(ENTRIES, "after_create", _forbid_changes)


class SqlStore(Store):
    """Entries of one run in a database that may hold many. What `append` wrote survives a power cut."""

    durable = True

    def __init__(self, url: str | sa.URL, run: str, *, create: bool = True) -> None:
        self._run = run
        self._holding: sa.Connection | None = None
        try:
            self._engine = sa.create_engine(url)
            if create:
                if self._engine.dialect.name == "sqlite":
                    sa.event.listen(self._engine, "connect", _durable)
                _meta.create_all(self._engine)
        except (SQLAlchemyError, ImportError) as reason:
            raise BazaarError(f"the ledger's database cannot be opened ({_brief(reason)}): check its URL") from None

    @classmethod
    def file(cls, path: Path, run: str) -> SqlStore:
        return cls(sa.URL.create("sqlite", database=str(path)), run)

    def hold(self) -> None:
        """Keeps other writers of this run out until `dispose`, or the end of the process, where the server can do
        that: PostgreSQL can. An SQLite file lies in the run's folder, which is locked as a whole."""
        if self._engine.dialect.name != "postgresql":
            return
        key = int.from_bytes(hashlib.sha256(self._run.encode()).digest()[:8], "big", signed=True)
        try:
            self._holding = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            held = self._holding.execute(sa.select(sa.func.pg_try_advisory_lock(key))).scalar()
        except SQLAlchemyError as reason:
            raise _unreachable(reason) from None
        if not held:
            self.dispose()
            raise BazaarError(BEING_PLAYED)

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        rows = [_row(self._run, entry) for entry in entries]
        try:
            with self._engine.begin() as connection:
                connection.execute(ENTRIES.insert(), rows)
                if snapshot is not None:
                    values = {"next_round": snapshot.next_round, "state": snapshot.state, "params": snapshot.params}
                    mine = SNAPSHOTS.c.run == self._run
                    if not connection.execute(SNAPSHOTS.update().where(mine).values(**values)).rowcount:
                        connection.execute(SNAPSHOTS.insert().values(run=self._run, **values))
        except IntegrityError:
            raise LedgerError(
                f"{entries[0]}: another process has written this entry: let only one process run a market"
            ) from None
        except DBAPIError as reason:
            lost = "it is not known whether this step was kept: resume the run, which finds out"
            kept = lost if reason.connection_invalidated else "nothing of this step was kept"
            raise LedgerError(f"the ledger cannot be written ({_brief(reason)}): {kept}") from None

    def entries(self) -> Iterator[Entry]:
        query = sa.select(*ENTRIES.c[1:]).where(ENTRIES.c.run == self._run).order_by(ENTRIES.c.seq)
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(query).all()  # at once: a reader must not hold up the run that writes
            for seq, kind, round, draw, provider, amount, body, seal in rows:
                yield Entry(seq, kind, round, draw, provider, amount, _parsed(seq, kind, body), seal)
        except (SQLAlchemyError, UnicodeDecodeError) as reason:
            raise self._unread(reason) from None

    def snapshot(self) -> Snapshot | None:
        query = sa.select(*SNAPSHOTS.c[1:]).where(SNAPSHOTS.c.run == self._run)
        try:
            with self._engine.connect() as connection:
                row = connection.execute(query).first()
        except (SQLAlchemyError, UnicodeDecodeError, TypeError) as reason:
            raise self._unread(reason) from None
        return None if row is None else Snapshot(*row)

    def finish(self) -> None:
        """Drops the parameters, which the run's folder has by now, and leaves one compact file without a log."""
        try:
            with self._engine.begin() as connection:
                connection.execute(SNAPSHOTS.update().where(SNAPSHOTS.c.run == self._run).values(params=b""))
            if self._engine.dialect.name == "sqlite":
                self._compact()
        except DBAPIError as reason:
            raise LedgerError(
                f"the ledger cannot be sealed ({_brief(reason)}): close what else has it open, then resume the run"
            ) from None
        finally:
            self.dispose()

    def _compact(self) -> None:
        """Waits some seconds for whoever reads the ledger just now."""
        for patience in range(PATIENCE, -1, -1):
            try:
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.exec_driver_sql("VACUUM")
                    connection.exec_driver_sql("PRAGMA journal_mode = DELETE")
                return
            except OperationalError:
                if not patience:
                    raise
                time.sleep(0.1)

    def _unread(self, reason: Exception) -> BazaarError:
        """A file that cannot be read is damaged; a server that does not answer says nothing about the ledger."""
        if self._engine.dialect.name != "sqlite" and isinstance(reason, OperationalError):
            return _unreachable(reason)
        return LedgerError(f"the ledger cannot be read ({_brief(reason)}): its file is damaged")

    def dispose(self) -> None:
        if self._holding is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._holding.invalidate()  # the connection ends, and the lock with it
                self._holding.close()
            self._holding = None
        self._engine.dispose()


def read_only(path: Path) -> sa.URL:
    """A URL that opens a SQLite file without changing a byte of it."""
    return sa.URL.create("sqlite", database=f"file:{quote(str(path.resolve()))}", query={"mode": "ro", "uri": "true"})


def _unreachable(reason: Exception) -> UncheckableError:
    return UncheckableError(f"the ledger's database cannot be reached ({_brief(reason)}): start it, or check its URL")


def _durable(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _row(run: str, entry: Entry) -> dict[str, Any]:
    return {
        "run": run,
        "seq": entry.seq,
        "kind": entry.kind,
        "round": entry.round,
        "draw": entry.draw,
        "provider": entry.provider,
        "amount": entry.amount,
        "body": canonical(entry.body),
        "hash": entry.hash,
    }


def _parsed(seq: Any, kind: Any, body: Any) -> dict[str, Any]:
    """The body, which must be spelled the one canonical way and belong to a kind that exists."""
    try:
        parsed = json.loads(body)
        if not isinstance(parsed, dict) or canonical(parsed) != body or kind not in KINDS:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise LedgerError(f"entry {seq}: its text is not as the ledger writes it: it was changed") from None
    return parsed


def _brief(reason: BaseException) -> str:
    original = getattr(reason, "orig", None) or reason
    return " ".join(str(original).split())[:200]
