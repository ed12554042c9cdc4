"""Kills a process of a hub before a chosen statement to a database, once: the file that $BAZAAR_FAULT names says in
which kind of process (hub, runner or settler) and before which statement, commits counted too. It goes with the kill.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

VARIABLE = "BAZAAR_FAULT"
_seen = 0


def role() -> str:
    """What this process does for the hub."""
    if multiprocessing.parent_process() is None:
        return "hub"
    return multiprocessing.current_process().name.partition("-")[0]


def _count(*_: Any, **__: Any) -> None:
    global _seen
    path = Path(os.environ[VARIABLE])
    try:
        fault = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        _seen = 0
        return
    if fault["role"] != role():
        return
    _seen += 1
    if _seen == fault["statement"]:
        path.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)


def _count_elsewhere(connection: Any, *_: Any, **__: Any) -> None:
    if connection.dialect.name != "sqlite":
        _count()


def _watch(connection: Any, _record: Any) -> None:
    """SQLite itself tells what is said to it, by whatever way; the rows of one `executemany` count once, and so does
    what their triggers do."""
    if not isinstance(connection, sqlite3.Connection):
        return
    last = ""

    def said(statement: str) -> None:
        nonlocal last
        verb = statement.partition(" ")[0]
        if verb != "INSERT" or last != "INSERT":
            _count()
        last = verb

    connection.set_trace_callback(said)


def install() -> None:
    """Watches all that this process says to databases."""
    if VARIABLE in os.environ:
        event.listen(Engine, "before_cursor_execute", _count_elsewhere)
        event.listen(Engine, "commit", _count_elsewhere)
        event.listen(Engine, "connect", _watch)
        event.listen(Session, "after_commit", _count)
