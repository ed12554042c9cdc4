"""What `bazaar check` found, in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from databazaar.cli.screen import LONGEST, console
from databazaar.config.check import Checked
from databazaar.data.profile_record import MarketProfile, TableProfile
from databazaar.display import shown
from databazaar.reports.wording import count, percent

MOST_COLUMNS = 40
MOST_CLASSES = 6
MOST_NAMES = 4
MOST_LETTERS = 120
"""A longer cell is cut."""


def show(checked: Checked, market: Path) -> None:
    """Tables, warnings, faults, and what a run would take."""
    screen = console()
    if checked.profile is not None:
        _show_profile(screen, checked.profile)
    _list(screen, "To be mended before a run", checked.faults)
    if checked.estimate is not None:
        for line in (f"Defence: {checked.defence}", *(f"- {spot}" for spot in checked.blind_spots)):
            _say(screen, line)
        _say(screen, f"A run: {checked.estimate.sentence}")
    warnings = count(len(checked.warnings), "warning")
    if checked.faults:
        _say(screen, f"{count(len(checked.faults), 'fault')}, {warnings}")
    else:
        _say(screen, f"no faults, {warnings}: `bazaar quote {market}` says what it costs, `bazaar run {market}` begins")


def _show_profile(console: Console, profile: MarketProfile) -> None:
    _say(console, f"How your columns are read, to predict {profile.target!r} ({profile.task})")
    columns = [
        (column.name, column.understood + (f" ({column.why})" if column.why else ""), column.example)
        for column in profile.columns
    ]
    console.print(_table(("column", "read as", "such as"), columns[:MOST_COLUMNS], numbers=False))
    if len(columns) > MOST_COLUMNS:
        _say(console, f"{len(columns) - MOST_COLUMNS:,} more columns stand in the JSON (--json)\n")
    _say(console, "The tables, against your hold-out")
    heads = ("table", "rows", "empty", "unseen", "outside", "shift", "copied", "repeated")
    console.print(_table(heads, [_cells(table) for table in profile.tables]))
    if profile.classes:
        first = profile.classes[:MOST_CLASSES]
        _say(console, "The share of each class" if first == profile.classes else "The most frequent classes")
        shares = [(t.id, *(percent(t.balance.get(name, 0.0), 1) for name in first)) for t in profile.tables]
        console.print(_table(("table", *first), shares))
    for ids, warnings in profile.remarks:
        more = f" and {len(ids) - MOST_NAMES} more" if len(ids) > MOST_NAMES else ""
        _list(console, ", ".join(ids[:MOST_NAMES]) + more, warnings)


def _cells(table: TableProfile) -> tuple[str, ...]:
    shares = (percent(share, 1) for share in (table.missing, table.unseen, table.outside))
    return (table.id, f"{table.rows:,}", *shares, f"{table.shift:.1f}", f"{table.copied:,}", f"{table.repeated:,}")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> Table:
    """Words on the left; all but the first column may be `numbers`."""
    table = Table(box=SIMPLE_HEAD)
    for place, head in enumerate(heads):
        justify: JustifyMethod = "right" if place and numbers else "left"
        table.add_column(Text(shown(head, MOST_LETTERS)), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(shown(cell, MOST_LETTERS)) for cell in row))
    return table


def _list(console: Console, head: str, sentences: Iterable[str]) -> None:
    lines = [f"- {sentence}" for sentence in sentences]
    for line in [head, *lines, ""] if lines else []:
        _say(console, line)


def _say(console: Console, text: str) -> None:
    console.print(shown(text, LONGEST), soft_wrap=True)
