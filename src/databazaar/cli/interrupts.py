"""Ctrl-C: a command that is interrupted says what is left of it, in one sentence. Imports little, as it comes first."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

INTERRUPTED = 130


class InterruptedByUser(BaseException):
    """Ctrl-C, under a name that typer does not take for its own."""


def _end(*_: object) -> None:
    """While the program is still being loaded nothing has begun, so that it can end on the spot."""
    os.write(2, b"bazaar: interrupted\n")
    os._exit(INTERRUPTED)


def _interrupt(*_: object) -> None:
    raise InterruptedByUser


@contextmanager
def _on_interrupt(handler: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ending_on_interrupts() -> AbstractContextManager[None]:
    """Ctrl-C ends the program at once, with one sentence: an exception would be lost among half-made modules."""
    return _on_interrupt(_end)


def catching_interrupts() -> AbstractContextManager[None]:
    """Turns Ctrl-C into `InterruptedByUser` while a command runs."""
    return _on_interrupt(_interrupt)


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
