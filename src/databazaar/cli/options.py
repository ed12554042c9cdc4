"""Arguments and options that several commands have, and how a command's help shows its examples."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from databazaar.errors import BazaarError

Market = Annotated[Path, typer.Argument(help="The market.toml.")]
Run = Annotated[Path, typer.Argument(help="The run's folder.")]
Kit = Annotated[Path, typer.Argument(help="Your kit: the folder with your key.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for what comes out. Default: a new one under runs/.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Instead of market.seed.")]
Engine = Annotated[str | None, typer.Option(help="Instead of engine.kind.")]
Device = Annotated[str | None, typer.Option(help="Instead of engine.device.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and only the last line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The database that the ledger is in, if it is in one. Default: $DATABAZAAR_LEDGER_URL.",
    ),
]


def changes(seed: int | None, engine: str | None, device: str | None) -> dict[str, dict[str, Any]]:
    return {"market": {"seed": seed}, "engine": {"kind": engine, "device": device}}


def example(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def named(given: str, option: str, known: Collection[str], things: str) -> list[str]:
    """The names in an option that lists some of the `known` ones, with commas between them; each once."""
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise BazaarError(f"{option} is empty: use some of {', '.join(known)}")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? " if close else ""
            raise BazaarError(f"{option}: {name!r} is unknown: {hint}The {things} are {', '.join(known)}")
    return names


def number_below(limit: float) -> Callable[[typer.CallbackParam, float | None], float | None]:
    """What an option is checked with whose number is above zero and below the limit; a NaN is neither."""

    def check(option: typer.CallbackParam, value: float | None) -> float | None:
        if value is not None and not 0 < value < limit:
            raise BazaarError(f"{option.opts[0]} {value:g}: give a number above 0 and below {limit:g}")
        return value

    return check
