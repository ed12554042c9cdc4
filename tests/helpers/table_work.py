"""What a process that reads a table may be made to do by a hostile file: each takes the file's path."""

from __future__ import annotations

import os
import time
from pathlib import Path


def spin(_: Path) -> None:
    while True:
        pass


def crash(_: Path) -> None:
    os.abort()


def fill_memory(_: Path) -> int:
    """More in one piece than the process may have; much less than the machine has."""
    return len(bytearray(2**28))


def fail(_: Path) -> None:
    raise RecursionError("a value of the table")


def speak_at_length(_: Path) -> str:
    return "x" * 2**26


def wait_for_it(path: Path) -> dict[str, object]:
    """Says that it is there, and goes on when it is told to, by files beside this one."""
    (path.parent / f"there-{os.getpid()}").touch()
    while not (path.parent / "go").exists():
        time.sleep(0.01)
    return {"rows": 1, "columns": []}
