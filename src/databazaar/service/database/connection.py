"""Reaching the database: SQLite in one file, or PostgreSQL. A transaction is one `with database.begin() as session`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError
from sqlalchemy.orm import Session, sessionmaker

from databazaar.errors import BazaarError
from databazaar.service.errors import InvalidError

PATIENCE_MS = 30_000
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""After so many seconds of silence the other end is asked for a sign of life, and given up after three without one."""
UNANSWERED_MS = 5_000
"""So long what was sent may stay unacknowledged before a connection is given up: a query may take longer, the network
not."""
CONNECT_SECONDS = 5
_READING = {"databazaar_read": True}
_ONE_MOMENT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class Database:
    """One database, for all threads of a process. Not to be carried over a fork: make one anew there."""

    def __init__(self, url: str, pool: int = 10) -> None:
        self.engine = _engine(url, pool)
        event.listen(self.engine, "handle_error", _refuse_unfit)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def begin(self) -> AbstractContextManager[Session]:
        """A transaction that may write, and commits at the end; on SQLite it takes the one write lock at once."""
        return self._sessions.begin()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads, from one moment's state on."""
        with self._sessions() as session:
            session.connection(execution_options=_READING if self.is_sqlite else _READING | _ONE_MOMENT)
            yield session

    def dispose(self) -> None:
        self.engine.dispose()


def _engine(url: str, pool: int) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BazaarError(
            "the database's address cannot be read: give sqlite:///FILE or postgresql://USER@HOST/NAME"
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    # errors are logged, and must not repeat what was being written
    shared: dict[str, Any] = {"pool_size": pool, "max_overflow": pool, "hide_parameters": True}
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": PATIENCE_MS / 1000}, **shared)
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.get_backend_name() != "postgresql":
        raise BazaarError(f"{parsed.drivername} is no database for a hub: give sqlite:///FILE or postgresql://…")
    reached = {"connect_timeout": CONNECT_SECONDS, **KEEPALIVES, "tcp_user_timeout": UNANSWERED_MS}
    ours = {name: value for name, value in reached.items() if name not in parsed.query}
    engine = create_engine(parsed, pool_pre_ping=True, connect_args=ours, **shared)
    event.listen(engine, "connect", _set_up_postgresql)
    return engine


def _set_up_postgresql(connection: Any, _: Any) -> None:
    """The server, too, is to notice soon that a hub's machine is lost, and let go of its locks."""
    server = {f"tcp_{name}": value for name, value in KEEPALIVES.items()} | {"tcp_user_timeout": 4 * UNANSWERED_MS}
    with connection.cursor() as cursor:
        for name, value in server.items():
            cursor.execute("SELECT set_config(%s, %s, false)", (name, str(value)))
    connection.commit()


def _set_up_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", f"busy_timeout = {PATIENCE_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _refuse_unfit(context: ExceptionContext) -> None:
    """A zero byte in an id, a number of 30 digits: the sender can mend it, and it is no fault of the hub."""
    unfit = isinstance(context.sqlalchemy_exception, DataError)
    if unfit or isinstance(context.original_exception, UnicodeEncodeError | OverflowError):
        raise InvalidError("what was sent holds a text or a number that no database keeps: correct it")


def _begin_sqlite(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN" if only_reads(connection) else "BEGIN IMMEDIATE")


def only_reads(connection: Connection) -> bool:
    """Whether it is a `Database.read`, which sees one moment's state."""
    return bool(connection.get_execution_options().get("databazaar_read", False))
