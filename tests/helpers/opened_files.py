"""Every opening of a file, as the interpreter's own audit events tell it. Such a hook cannot be taken away again, so it
is set in a forked process."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")


def in_fork(task: Callable[[], Result]) -> Result:
    """What a task gives in a process of its own. Call it in a process without threads."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(task, there))
    process.start()
    there.close()
    try:
        result: Result = here.recv()
    finally:
        process.join()
    return result


def _answer(task: Callable[[], Any], there: Connection) -> None:
    there.send(task())


def tell_opens(folder: Path, suffix: str, tell: Callable[[str], None]) -> None:
    """From now on, in this process: `tell` gets the name of every such file of a folder just before it is opened."""
    telling = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal telling
        if event != "open" or telling or not isinstance(args[0], str | bytes):
            return
        path = Path(os.fsdecode(args[0])).absolute()
        if path.parent == folder and path.name.endswith(suffix):
            telling = True  # what `tell` opens itself is not told
            try:
                tell(path.name)
            finally:
                telling = False

    sys.addaudithook(hook)
