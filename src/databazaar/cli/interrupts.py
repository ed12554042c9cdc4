"""Ctrl-C: a command that is interrupted says what is left of it, in one sentence. Imports little, as it comes first."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130


class InterruptedByUser(BaseException):
    """Ctrl-C, under a name that typer does not take for its own."""


def end(*_: object) -> None:
    """Ends the program on the spot, while it is being loaded: an exception would be lost among half-made modules."""
    os.write(2, b"bazaar: interrupted\n")
    os._exit(INTERRUPTED)


def interrupt(*_: object) -> None:
    raise InterruptedByUser


@contextmanager
def on_signal(number: int, handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def if_interrupted(what_is_left: str) -> Iterator[None]:
    """What is said where the command is interrupted here; it ends with the usual exit code."""
    import typer

    from databazaar.cli.screen import say

    try:
        yield
    except InterruptedByUser:
        say(f"bazaar: interrupted; {what_is_left}", err=True)
        raise typer.Exit(INTERRUPTED) from None
