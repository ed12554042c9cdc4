"""What is said to SQLite's driver itself: a round's transaction, and the reading of many entries.

Putting a statement together anew, and a connection's way out of a pool and back, take as long as half of a commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from databazaar.ledger.schema import ENTRIES, SNAPSHOTS

_INSERT = f"INSERT INTO {ENTRIES.name} VALUES ({', '.join('?' * len(ENTRIES.c))})"  # noqa: S608
_FIRST = f"INSERT INTO {SNAPSHOTS.name} (next_round, sampler, params, run) VALUES (?, ?, ?, ?)"  # noqa: S608
_REPLACE = f"UPDATE {SNAPSHOTS.name} SET next_round = ?, sampler = ?, params = ? WHERE run = ?"  # noqa: S608
_READ = (
    f"SELECT {', '.join(column.name for column in ENTRIES.c[1:])} FROM {ENTRIES.name} "  # noqa: S608
    "WHERE run = ? AND seq <= ?{after} ORDER BY seq LIMIT ?"
)
PAGE = 64
"""So many entries are read at once: few enough that they are still near the processor when somebody looks at them, and
that they do not wake the collector of garbage, which would look through the terms of a large market."""

Row = tuple[Any, ...]


class SqliteWriter:
    """Writes through one connection of the engine's pool, which it holds from the first transaction on. Between two of
    them the connection holds no lock: whoever reads is not kept waiting."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._held: sa.PoolProxiedConnection | None = None
        self._driver: sqlite3.Connection | None = None

    def append(self, entries: Sequence[Row], snapshot: Row | None) -> None:
        """All of it or nothing. The snapshot, if any, replaces the one before: round, state, parameters and run."""
        connection = self._driver or self._connected()
        try:
            connection.executemany(_INSERT, entries)
            if snapshot is not None and not connection.execute(_REPLACE, snapshot).rowcount:
                connection.execute(_FIRST, snapshot)
            connection.commit()
        except BaseException:
            assert self._held is not None
            self._held.invalidate()  # it ends, which undoes what was not committed
            self._held = self._driver = None
            raise

    def _connected(self) -> sqlite3.Connection:
        self._held = self._engine.raw_connection()
        driver = self._held.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self._driver = driver
        return driver

    def release(self) -> None:
        """Gives the connection back."""
        if self._held is not None:
            self._held.close()
            self._held = self._driver = None


def pages_of(connection: sa.Connection, run: str, end: Any) -> Iterator[Sequence[Row]]:
    """A run's entries up to this number in their order, some at a time: all of an entry but the run. The first comes
    alone: it is the opening, which may be large. Between two pages the connection holds no lock."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    rows = driver.execute(_READ.format(after=""), (run, end, 1)).fetchall()
    following = _READ.format(after=" AND seq > ?")
    while rows:
        yield rows
        rows = driver.execute(following, (run, end, rows[-1][0], PAGE)).fetchall()
