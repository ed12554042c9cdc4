"""`bazaar init`: a market.toml to start from, or one that is made from the files in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from databazaar.cli.screen import say
from databazaar.errors import BazaarError
from databazaar.files import write_whole

EXAMPLES = (
    "bazaar init data",
    "bazaar init 'data/*.parquet' --own data/ours.parquet --target churned",
    "bazaar init",
    "bazaar init --example fraud && bazaar run fraud/market.toml",
)


def init(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER|FILE|GLOB]...",
            help="Tables, or the places where they are. Without tables, where to write the file.",
        ),
    ] = None,
    own: Annotated[Path | None, typer.Option(help="Your own file, which judges the model.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    task: Annotated[Literal["classification", "regression"] | None, typer.Option(help="What it is.")] = None,
    with_files: Annotated[bool, typer.Option("--example", help="With synthetic files that it can run on.")] = False,
) -> None:
    """Writes a market.toml from the tables it finds, or a commented one to start from."""
    from databazaar.config.discover import Wishes, discover, tables_at
    from databazaar.config.template import template, written_market
    from databazaar.data.fraud import write_fraud_files

    given = places or [Path()]
    files = [] if with_files else tables_at([*(places or []), *([own] if own else [])])
    if files:
        folder = _folder(places or [], files)
        _refuse_taken(folder)
        wishes = Wishes(own, target, task, ask if sys.stdin.isatty() and sys.stderr.isatty() else None)
        found = discover(files, folder, wishes)
        path = _write(folder, written_market(found))
        trains = f", {found.train} is where training starts" if found.train else ""
        say(f"{found.holdout} judges{trains}; {len(found.providers)} providers; {found.task} of {found.target!r}")
        for note in found.notes:
            say(f"- {note}")
        say(f"{path} is written: look at the files with `bazaar check {path}`, then `bazaar run {path}`")
        return
    if with_files and len(given) > 1:
        raise BazaarError("--example writes into one folder: name one")
    for place in given:
        if not with_files and (len(given) > 1 or any(sign in str(place) for sign in "*?[")):
            raise BazaarError(f"{place}: there is no table: name CSV, TSV or Parquet files, or a folder that has some")
    path = write_fraud_files(given[0]) if with_files else _write(given[0], template())
    say(f"{path} is written: edit it, then `bazaar run {path}`")


def _folder(places: Sequence[Path], files: Sequence[Path]) -> Path:
    """Where the market.toml of these files goes: into the folder that was named, or else the one that has them all."""
    if len(places) == 1 and places[0].is_dir():
        return places[0]
    common = Path(os.path.commonpath([path.resolve().parent for path in files]))
    return common.relative_to(Path.cwd()) if common.is_relative_to(Path.cwd()) else common


def _write(folder: Path, text: str) -> Path:
    path = _refuse_taken(folder)
    write_whole(path, text.encode())
    return path


def _refuse_taken(folder: Path) -> Path:
    path = folder / "market.toml"
    if path.exists():
        raise BazaarError(f"{path}: the file exists already: remove it or choose another folder")
    return path


def ask(question: str, answers: Sequence[str]) -> str:
    """Asks on the terminal until one of the answers, or its number, is given."""
    for number, answer in enumerate(answers, start=1):
        say(f"  {number}  {answer}", err=True)
    while True:
        given = str(typer.prompt(question, err=True)).strip()
        if given in answers:
            return given
        if given.isdigit() and 1 <= int(given) <= len(answers):
            return answers[int(given) - 1]
        typer.echo(f"{given!r} is none of them: give one of the numbers", err=True)
