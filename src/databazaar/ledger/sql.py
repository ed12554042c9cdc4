"""The ledger in a database: SQLite by default, any other that SQLAlchemy knows by its URL."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from databazaar.canonical import canonical
from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.ledger.chain import KINDS, Entry
from databazaar.ledger.schema import ENTRIES, SNAPSHOTS, prepare, refuse_other
from databazaar.ledger.snapshot_files import (
    DamagedFileError,
    Places,
    places_in,
    remove_files,
    text_of,
    write_files,
)
from databazaar.ledger.store import Snapshot, Store

PATIENCE = 100
"""Tenths of a second for which the end of a run waits for readers."""

READINGS = 20
"""So often the files of a run that goes on are read, until none has changed meanwhile."""

_BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a file that is being written."""

PAGE = 4096
"""So many entries are read at once."""

Row = dict[str, Any]

BEING_PLAYED = "another process is playing this run: wait for it, or stop it first"


class SqlStore(Store):
    """Entries of one run in a database that may hold many. What `append` wrote survives a power cut.

    Arrays that are large are kept as files in the run's `folder`, where it has one, and the transaction names them.
    """

    durable = True

    def __init__(self, url: str | sa.URL, run: str, *, create: bool = True, folder: Path | None = None) -> None:
        self._run = run
        self._folder = None if folder is None else folder.absolute()
        self._holding: sa.Connection | None = None
        try:
            self._engine = sa.create_engine(url)
            if create:
                self._prepare()
        except (SQLAlchemyError, ImportError) as reason:
            raise BazaarError(f"the ledger's database cannot be opened ({brief(reason)}): check its URL") from None

    def _prepare(self) -> None:
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _durable)
        try:
            prepare(self._engine)
        except BaseException:
            self._engine.dispose()
            raise

    @classmethod
    def file(cls, path: Path, run: str) -> SqlStore:
        return cls(sa.URL.create("sqlite", database=str(path)), run, folder=path.parent)

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
        values = None if snapshot is None else self._values(snapshot)
        rows = [{"run": self._run, **entry._asdict(), "body": canonical(entry.body)} for entry in entries]
        self._committing = False
        try:
            self._commit(rows, values)
        except IntegrityError:
            raise LedgerError(
                f"{entries[0]}: another process has written this entry: let only one process run a market"
            ) from None
        except DBAPIError as reason:
            if self._committing and getattr(reason, "connection_invalidated", False):
                raise LedgerError(
                    f"the ledger's database was lost while a step was being committed ({brief(reason)}): it is not "
                    "known whether that was kept; `bazaar run` finds out, and goes on from there"
                ) from None
            raise LedgerError(
                f"the ledger cannot be written ({brief(reason)}): nothing of this step was kept"
            ) from None

    def _commit(self, rows: Sequence[Row], snapshot: Row | None) -> None:
        """All of it or nothing. The snapshot, if any, replaces the one before."""
        with self._engine.connect() as connection, connection.begin() as transaction:
            _wait_for_the_disk(connection)
            connection.execute(ENTRIES.insert(), rows)
            if snapshot is not None:
                mine = SNAPSHOTS.c.run == self._run
                if not connection.execute(SNAPSHOTS.update().where(mine).values(**snapshot)).rowcount:
                    connection.execute(SNAPSHOTS.insert().values(**snapshot))
            self._committing = True
            transaction.commit()

    def _values(self, snapshot: Snapshot) -> Row:
        """What the transaction holds of a snapshot: all of it, or where the large part is, which is durable by now."""
        if self._folder is None:
            snapshot = snapshot.packed()
        params = snapshot.params
        if self._folder is not None and snapshot.large:
            row = self._snapshot_row()
            named = {} if row is None else self._places(row)
            try:
                params = text_of(write_files(self._folder, snapshot.large, [place.file for place in named.values()]))
            except OSError as reason:
                raise LedgerError(
                    f"the ledger cannot be written ({reason.strerror}): nothing of this step was kept"
                ) from None
        return {"run": self._run, "next_round": snapshot.next_round, "state": snapshot.state, "params": params}

    def entries(self) -> Iterator[Entry]:
        """The entries that are there when the first is asked for. They come in pages, each read by itself: a reader of
        a long ledger neither holds all of it nor holds up the run that writes."""
        try:
            for page in self._pages():
                yield from map(_entry_of, page)
        except (SQLAlchemyError, UnicodeDecodeError) as reason:
            raise self._unread(reason) from None

    def _pages(self) -> Iterator[Sequence[Any]]:
        mine = ENTRIES.c.run == self._run
        with self._engine.connect() as connection:
            refuse_other(connection)
            end = connection.execute(sa.select(sa.func.max(ENTRIES.c.seq)).where(mine)).scalar()
        if end is None:
            return
        following = sa.select(*ENTRIES.c[1:]).where(mine, ENTRIES.c.seq <= end).order_by(ENTRIES.c.seq).limit(PAGE)
        query, more = following, True
        while more:
            with self._engine.connect() as connection:
                rows = connection.execute(query).all()
            yield rows
            more = len(rows) == PAGE
            query = following.where(ENTRIES.c.seq > rows[-1][0]) if more else following

    def snapshot(self) -> Snapshot | None:
        """What the last transaction has left. A run that goes on may replace its files: then all is read again."""
        for _ in range(READINGS):
            row = self._snapshot_row()
            if row is None:
                return None
            places = self._places(row)
            if not places or self._folder is None:
                return Snapshot(*row)
            try:
                large = {name: place.read(self._folder) for name, place in places.items()}
                return Snapshot(row[0], row[1], b"", large)
            except DamagedFileError:
                if self._snapshot_row() == row:
                    raise
        raise UncheckableError("the run goes on faster than its files can be read: look at it later")

    def _snapshot_row(self) -> tuple[int, bytes, bytes] | None:
        query = sa.select(*SNAPSHOTS.c[1:]).where(SNAPSHOTS.c.run == self._run)
        try:
            with self._engine.connect() as connection:
                row = connection.execute(query).first()
        except (SQLAlchemyError, UnicodeDecodeError, TypeError) as reason:
            raise self._unread(reason) from None
        return None if row is None else (row[0], row[1], row[2])

    def _places(self, row: tuple[int, bytes, bytes]) -> Places:
        try:
            return places_in(row[2])
        except ValueError as reason:
            raise self._unread(reason) from None

    def finish(self) -> None:
        """Drops the parameters, which the run's folder has by now, and leaves one compact file without a log."""
        try:
            with self._engine.begin() as connection:
                _wait_for_the_disk(connection)
                connection.execute(SNAPSHOTS.update().where(SNAPSHOTS.c.run == self._run).values(params=b""))
            if self._engine.dialect.name == "sqlite":
                self._compact()
            if self._folder is not None:
                remove_files(self._folder)
        except (DBAPIError, OSError) as reason:
            raise LedgerError(
                f"the ledger cannot be sealed ({brief(reason)}): close what else has it open, then resume the run"
            ) from None
        finally:
            self.dispose()

    def _compact(self) -> None:
        """Waits some seconds for readers of the ledger.

        SQLite does not raise where it fails to leave its log or to remove a journal. The next process to open the file
        would undo by that journal what is about to be sealed, so it is done again until nothing is beside the file.
        """
        for patience in range(PATIENCE, -1, -1):
            self._engine.dispose()  # only who is alone with a file can have it without a log
            try:
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.exec_driver_sql("VACUUM")
                    mode = connection.exec_driver_sql("PRAGMA journal_mode = DELETE").scalar()
                self._engine.dispose()
                left = [end for end in _BESIDE if Path(f"{self._engine.url.database}{end}").exists()]
                if mode == "delete" and not left:
                    return
                if not patience:
                    why = f"{', '.join(left) or mode} stays"
                    raise LedgerError(f"the ledger cannot be sealed ({why}): see to the disk, then resume the run")
            except OperationalError:
                if not patience:
                    raise
            time.sleep(0.1)

    def _unread(self, reason: Exception) -> BazaarError:
        """A file that cannot be read is damaged; a server that does not answer says nothing about the ledger."""
        if self._engine.dialect.name != "sqlite" and isinstance(reason, OperationalError):
            return _unreachable(reason)
        return LedgerError(f"the ledger cannot be read ({brief(reason)}): its file is damaged")

    def dispose(self) -> None:
        if self._holding is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._holding.execute(sa.select(sa.func.pg_advisory_unlock_all()))  # who comes next does not wait
                self._holding.invalidate()  # the connection ends, and the lock with it
                self._holding.close()
            self._holding = None
        self._engine.dispose()


def _wait_for_the_disk(connection: sa.Connection) -> None:
    """A commit is answered when it is durable, whatever the role or the database has as its default."""
    if connection.dialect.name == "postgresql":
        setting = sa.func.current_setting("synchronous_commit")
        on = sa.func.set_config("synchronous_commit", "on", True)
        connection.execute(sa.select(on).where(setting.not_in(["on", "remote_apply"])))


def _unreachable(reason: Exception) -> UncheckableError:
    return UncheckableError(f"the ledger's database cannot be reached ({brief(reason)}): start it, or check its URL")


def _durable(connection: Any, _record: Any) -> None:
    """SQLite's busy timeout does not cover the change to WAL: processes that open a new file at once try again."""
    cursor = connection.cursor()
    for patience in range(PATIENCE, -1, -1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as reason:
            if not patience or "locked" not in str(reason):
                raise
            time.sleep(0.1)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _entry_of(row: Sequence[Any]) -> Entry:
    """The entry, whose body must be spelled the one canonical way, and which must be of a kind that exists."""
    seq, kind, round, draw, provider, amount, text, seal = row
    try:
        body = json.loads(text)
        if not isinstance(text, str) or not isinstance(body, dict) or canonical(body) != text or kind not in KINDS:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise LedgerError(f"entry {seq}: its text is not as the ledger writes it: it was changed") from None
    return Entry(seq, kind, round, draw, provider, amount, body, seal)


def brief(reason: BaseException) -> str:
    original = getattr(reason, "orig", None) or reason
    return " ".join(str(original).split())[:200]
