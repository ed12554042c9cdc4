"""A ledger's SQLite file, which may come from anybody: looked at before it is read, and read without a trace.

SQLite files can hold programs (views, triggers, generated columns) and pages that point at each other without end. Ours
hold two tables and the triggers that forbid changes, so whatever else is in one is refused before any of it is asked.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache
from io import FileIO
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from databazaar.errors import BazaarError, LedgerError, UncheckableError
from databazaar.files import open_plain, unless_locked
from databazaar.ledger.schema import ENTRIES

LARGEST_FILE = 4 * 2**30
"""Bytes of a ledger's file, thirty times what 100,000 rounds take."""
LARGEST_BODY = 2**26
"""Bytes of one entry: the terms of a market of a million providers."""
LOGS = ("-wal", "-journal")
"""What a process that was killed leaves beside the file: the last entries, or how to take a half step back."""
PIECE = 2**20
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
"""How a journal ends that names a file to be removed with it, as SQLite writes it where several databases change at
once. A ledger is one."""


@contextlib.contextmanager
def readable(path: Path, player: Path) -> Iterator[sa.URL]:
    """A URL under which the ledger can be read, while nothing is written beside it.

    `player` is the file that the process of the run locks. Where none does, the file is read as it lies there, or a
    copy of it together with what a killed process has left; otherwise it is read beside its writer.
    """
    folder = path.parent
    _refuse_odd_files(path)
    with contextlib.ExitStack() as held:
        if not held.enter_context(unless_locked(player, folder)):
            url = _opened(path, mode="ro")
        elif any(_size(_beside(path, end)) for end in LOGS):
            place = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="bazaar-")))
            for end in ("", *LOGS):
                if _size(_beside(path, end)):
                    _copy(_beside(path, end), place / f"ledger{end}", folder)
            url = _opened(place / "ledger", mode="rw")
        else:
            url = _opened(path, mode="ro", immutable="1")
        _refuse_programs(url)
        yield url


def refuse_foreign(path: Path) -> None:
    """Refuses to write into a file with another name elsewhere, or with programs that a write would run."""
    _refuse_odd_files(path)
    for end in ("", "-shm", *LOGS):
        with contextlib.suppress(FileNotFoundError):
            if _beside(path, end).lstat().st_nlink > 1:
                raise BazaarError(f"{_beside(path, end)} is also a file elsewhere (a hard link): copy it here instead")
    if _size(path) and not any(_size(_beside(path, end)) for end in LOGS):
        _refuse_programs(_opened(path, mode="ro", immutable="1"))
    elif _size(path):
        _refuse_programs(_opened(path, mode="rw"))


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _refuse_odd_files(path: Path) -> None:
    for end in ("", "-shm", *LOGS):
        place = _beside(path, end)
        with contextlib.suppress(FileNotFoundError), open_plain(place, path.parent) as file:
            if _ends_in(file, _NAMES_ANOTHER):
                raise LedgerError(f"{place} names a file elsewhere, which SQLite would remove: it is not ours")
    size = sum(_size(_beside(path, end)) for end in ("", *LOGS))
    if size > LARGEST_FILE:
        raise UncheckableError(
            f"{path} has {size:,} bytes, and ledgers of up to {LARGEST_FILE:,} are read: ask its owner for the real one"
        )


def _ends_in(file: FileIO, end: bytes) -> bool:
    size = os.fstat(file.fileno()).st_size
    return size >= len(end) and os.pread(file.fileno(), len(end), size - len(end)) == end


def _copy(source: Path, target: Path, within: Path) -> None:
    """Holes stay holes: a file may claim to be larger than any disk."""
    with open_plain(source, within) as given, FileIO(target, "wb") as made:
        while piece := given.read(PIECE):
            if piece.count(0) == len(piece):
                made.seek(len(piece), os.SEEK_CUR)
            else:
                made.write(piece)
        made.truncate(made.tell())


def _opened(path: Path, **how: str) -> sa.URL:
    name = path.parent.resolve() / path.name  # the folder may be a link of the user's own, the file may not
    return sa.URL.create("sqlite", database=f"file:{quote(str(name))}", query={**how, "uri": "true"})


def _refuse_programs(url: sa.URL) -> None:
    how = {name: value for name, value in url.query.items() if name != "uri"}
    uri = f"{url.database}?" + "&".join(f"{name}={value}" for name, value in how.items())
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_BODY)
            made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            foreign = [name for name, sql in made if _plain(sql) not in _ours()]
            if foreign:
                raise LedgerError(f"the ledger's file holds {foreign[0]!r:.60}, which no ledger has: it is not ours")
            sound = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != ("ok",):
                raise LedgerError(f"the ledger cannot be read ({str(sound[0])[:100]}): its file is damaged")
            if any(name == ENTRIES.name for name, _ in made):
                connection.execute(f"SELECT max(length(body)) FROM {ENTRIES.name}").fetchone()  # noqa: S608
    except (sqlite3.Error, UnicodeDecodeError) as reason:
        raise LedgerError(f"the ledger cannot be read ({str(reason)[:100]}): its file is damaged") from None


def _plain(sql: object) -> str:
    return " ".join(str(sql).split())


@cache
def _ours() -> frozenset[str]:
    """What a new ledger's file says of itself."""
    engine = sa.create_engine("sqlite://")
    try:
        ENTRIES.metadata.create_all(engine)
        with engine.connect() as connection:
            made = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").all()
        return frozenset(_plain(sql) for (sql,) in made)
    finally:
        engine.dispose()
