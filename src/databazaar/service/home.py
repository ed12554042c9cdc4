"""The hub's folder belongs to its database: both hold one market id, written when the hub first serves.

The database knows who has paid, and the folder has the ledgers that say for what. So a database with an empty folder,
as where a volume is not mounted, is refused: every job under way would look as if it had never run.

One hub works on a database and in a home, never two: both are held, by the kernel and by PostgreSQL, for as long as the
hub lives, however it ends. Several machines cannot share a home, because runs keep their ledgers in SQLite files with
write-ahead logs, which no network file system carries. So a second hub is refused.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from databazaar.errors import BazaarError
from databazaar.files import lock, read_plain, write_whole
from databazaar.service import members
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import new_id
from databazaar.service.settings import Settings

FILE, LOCK = "market-id", "hub.lock"
KEY = 0x6261_7A61_6172
"""The number under which PostgreSQL keeps a hub's hold on its database."""
PATIENCE = 10.0
"""Seconds until PostgreSQL has surely noticed that a hub was killed."""
TAKEN = "another hub works {where}: stop that one first, or serve pages beside it with --runners 0"


class ForeignHomeError(BazaarError):
    """The folder is not that of the database."""


def bind(settings: Settings, database: Database) -> None:
    """Writes one new id into both, where neither has any; and refuses a folder and a database that differ."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with database.begin() as session:
        market = members.market(session, lock=True)
        if market.market_id is None and _read(settings) is None:
            market.market_id = new_id()
            write_whole(settings.home / FILE, f"{market.market_id}\n".encode(), mode=0o600)
        require_home(session, settings)


def require_home(session: Session, settings: Settings) -> None:
    """Refuses a folder that is not, or is no longer, that of the database."""
    here, wanted = _read(settings), members.market(session).market_id
    if here == wanted:
        return
    if here is None:
        raise ForeignHomeError(
            f"{settings.home} is not the folder of this database, which belongs to market {wanted}, for it has no file "
            f"{FILE}: mount that folder or restore its copy, and see 'A folder that is lost' in docs/operate.md"
        )
    other = "has no folder yet" if wanted is None else f"belongs to market {wanted}"
    raise ForeignHomeError(
        f"{settings.home} is the folder of market {here}, and the database {other}: give the right folder with --home, "
        "or the right database with --database"
    )


def _read(settings: Settings) -> str | None:
    path = settings.home / FILE
    try:
        return read_plain(path, most=1000).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise ForeignHomeError(f"{path} cannot be read ({reason.strerror}): make it readable to the hub") from None


class HubLockedError(BazaarError):
    """Another hub is there already."""


class HubLock:
    """This process is the one hub, from here until `release`."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files = [_held(settings.home / LOCK, f"in {settings.home}")]
        try:
            if database.is_sqlite:
                self._files.append(_held(Path(f"{database.engine.url.database}.lock"), "on this database"))
            else:
                self._hold(PATIENCE)
        except BaseException:
            self.release()
            raise

    def still(self) -> None:
        """Holds the database again where the server was started anew meanwhile."""
        if self._database.is_sqlite:
            return
        try:
            assert self._connection is not None
            self._connection.execute(text("SELECT 1"))
        except (AssertionError, SQLAlchemyError):
            self._let_go()
            self._hold(patience=0.0)

    def _hold(self, patience: float) -> None:
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        until = time.monotonic() + patience
        while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": KEY}):
            if time.monotonic() >= until:
                connection.close()
                raise HubLockedError(TAKEN.format(where="on this database"))
            time.sleep(0.1)
        self._connection = connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()

    def release(self) -> None:
        self._let_go()
        for file in self._files:
            file.close()


def _held(path: Path, where: str) -> FileIO:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        return lock(path, TAKEN.format(where=where))
    except BazaarError as taken:
        raise HubLockedError(str(taken)) from None
