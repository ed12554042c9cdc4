"""Ctrl-C: a command that is interrupted says what is left of it, in one sentence."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

INTERRUPTED = 130


class InterruptedByUser(BaseException):
    """Ctrl-C, under a name that typer does not take for its own."""


def _interrupt(*_: object) -> None:
    raise InterruptedByUser


@contextmanager
def catching_interrupts() -> Iterator[None]:
    """Turns Ctrl-C into `InterruptedByUser` while a command runs."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def if_interrupted(what_is_left: str) -> Iterator[None]:
    """What to say to whoever interrupts the command here; it ends with the usual exit code."""
    try:
        yield
    except InterruptedByUser:
        typer.echo(f"bazaar: interrupted; {what_is_left}", err=True)
        raise typer.Exit(INTERRUPTED) from None
