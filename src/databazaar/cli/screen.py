"""The way to the screen. Names, labels and sentences come from other people, and a terminal obeys some characters: what
is printed here is shown and never obeyed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOBase
from typing import TextIO

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from databazaar.display import shown, shown_lines

LONGEST = 4000
"""A sentence is cut here, whatever stands in it."""
LONGEST_CELL = 120


class Screen(TextIOBase):
    """A standard stream that takes text and ends of lines, and nothing that a terminal would obey.

    >>> screen = Screen(sys.stdout)
    >>> _ = screen.write("north\\x1b[2J \\u202eknab\\n")
    north�[2J �knab
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a screen takes text")
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(shown_lines(text).encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"


@contextmanager
def on_screen() -> Iterator[None]:
    """While a command runs, whatever it prints goes through a `Screen`: its lines, notes, logs and errors."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and Screen(stream) for stream in (out, err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def console(stderr: bool = False, quiet: bool = False) -> Console:
    """Where tables and progress are drawn: no markup, no smileys, and cells that are shown as they are."""
    stream = sys.stderr if stderr else sys.stdout
    file = stream.stream if isinstance(stream, Screen) else stream
    made = Console(file=file, markup=False, emoji=False, highlight=False, quiet=quiet)
    made.push_render_hook(_Shown())
    return made


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str = "",
    words: Collection[int] = (0,),
    wrapped: Collection[int] = (),
) -> Table:
    """A table whose cells are shown as they are: columns of `words` stand on the left, those `wrapped` may break."""
    made = Table(title=Text(title) if title else None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, head in enumerate(heads):
        head = "\n".join(shown(line, LONGEST_CELL) for line in head.split("\n"))
        made.add_column(
            Text(head),
            justify="left" if place in words else "right",
            no_wrap=place not in wrapped,
            overflow="fold" if place in wrapped else "ellipsis",
        )
    for row in rows:
        made.add_row(*(Text(shown(cell, LONGEST_CELL)) for cell in row))
    return made


def print_lines(head: str, sentences: Iterable[str]) -> None:
    """A list with its head, where there is anything to list."""
    lines = [f"- {sentence}" for sentence in sentences]
    for line in [head, *lines, ""] if lines else []:
        say(line)


def say(text: object, err: bool = False) -> None:
    """One line of text, whatever stands in it."""
    typer.echo(shown(text, LONGEST), err=err)


class OneLine(logging.Formatter):
    """A log whose messages stay on their line, so that nobody writes lines of its own into it."""

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = shown(record.getMessage(), LONGEST), ()
        return super().format(record)


class _Shown(RenderHook):
    """Everything that a console prints, with what a terminal would obey taken out."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Harmless(renderable) for renderable in renderables]


class _Harmless:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self.inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text, style, control in console.render(self.inner, options):
            yield Segment(text if control else shown_lines(text), style, control)
