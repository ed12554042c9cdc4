"""A ledger's store whose process dies at a chosen write, sync or commit of a large snapshot; it may be halfway through.

Run as a script it is a process that forks one player for each line it reads, so that a death costs milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from databazaar import files
from databazaar.canonical import GENESIS
from databazaar.ledger import Entry, Snapshot, snapshot_files
from databazaar.ledger.sql import SqlStore
from databazaar.vectors import HashedArray

LEDGER = "ledger.sqlite"
CALLS = ("open", "rename", "unlink", "fsync")


def model(round: int) -> NDArray[np.float32]:
    return np.arange(round, round + 20_000, dtype=np.float32)


def best(round: int, improves: list[int]) -> int:
    """After which of the rounds so far the best model was reached."""
    return max([1, *(good for good in improves if good <= round)])


def entry(seq: int, head: str) -> Entry:
    return Entry(seq, "void", seq, 0, "p", 1, {"reason": "none"}).sealed(head)


def opened(folder: Path, server: str | None = None) -> SqlStore:
    """The store of a run in this folder, whose ledger is a file there or on a server."""
    return SqlStore.file(folder / LEDGER, "run") if server is None else SqlStore(server, folder.name, folder=folder)


def play(folder: Path, rounds: int, improves: list[int], server: str | None = None) -> None:
    """Goes on with the ledger until it has so many rounds, one entry each. What is still the best stays one object."""
    snapshot_files.LARGE = 1
    store = opened(folder, server)
    written = list(store.entries())
    head, models = written[-1].hash if written else GENESIS, dict[int, HashedArray]()
    for seq in range(len(written), rounds):
        new, top = (models.setdefault(r, HashedArray(model(r))) for r in (seq + 1, best(seq + 1, improves)))
        snapshot = Snapshot.of(seq + 1, {"best": top, "scores": np.array([0.5])}, new)
        one = entry(seq, head)
        store.append([one], snapshot)
        head = one.hash
    store.dispose()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(kill: int, halfway: bool) -> None:
    """Dies at the `kill`th of the calls that matter."""
    left = [kill]

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if halfway and call is write:
                    args[0].write(args[-1][: len(args[-1]) // 2])
                _die()
            return call(*args, **more)

        return counted

    write = files._write
    files._write = deadly(write)
    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))
    commit = deadly(lambda: None)

    def watch(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.set_trace_callback(lambda said: commit() if said == "COMMIT" else None)

    sa.event.listen(sa.Engine, "connect", watch)
    sa.event.listen(sa.Engine, "commit", lambda lost: None if lost.dialect.name == "sqlite" else commit())


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _arm(asked["kill"], asked["halfway"])
            play(Path(asked["folder"]), asked["rounds"], asked["improves"], asked["server"])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Players:
    """The process that forks players."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def play(
        self, folder: Path, rounds: int, improves: list[int], kill: int, halfway: bool, server: str | None = None
    ) -> bool:
        """Whether it came to its end. It plays until it dies."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"folder": str(folder), "rounds": rounds, "improves": improves, "kill": kill, "halfway": halfway}
        asked["server"] = server
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        assert code in (0, -signal.SIGKILL), code
        return code == 0

    def close(self) -> None:
        self._process.communicate(timeout=60)


if __name__ == "__main__":
    serve()
