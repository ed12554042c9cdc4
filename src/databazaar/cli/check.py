"""`bazaar check`: all faults of a market's files at once, and what its tables are like, before anything is bought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.options import AsJson

if TYPE_CHECKING:
    from databazaar.config.check import Checked
    from databazaar.data.profile_record import MarketProfile

EXAMPLES = ("bazaar check market.toml", "bazaar check market.toml --json")
AT_FAULT = 2
MOST_COLUMNS, MOST_CLASSES, MOST_NAMES = 40, 6, 4


def check(
    market: Annotated[Path, typer.Argument(help="The market.toml to look at.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Finds every fault of a market's settings and files, and compares each table with your own.

    Exit code 2 where a run would be refused; warnings do not count.
    """
    from databazaar.config.check import check_market

    checked = check_market(market)
    if as_json:
        typer.echo(json.dumps(checked.to_dict()))
    else:
        show(checked, market)
    raise typer.Exit(AT_FAULT if checked.faults else 0)


def show(checked: Checked, market: Path) -> None:
    """Tables, warnings, faults, and what a run would take."""
    from databazaar.cli.screen import print_lines, say
    from databazaar.reports.words import count

    if checked.profile is not None:
        _show_profile(checked.profile)
    print_lines("To be mended before a run", checked.faults)
    if checked.estimate is not None:
        for line in (f"Defence: {checked.defence}", *(f"- {spot}" for spot in checked.blind_spots)):
            say(line)
        say(f"A run: {checked.estimate.sentence}")
    warnings = count(len(checked.warnings), "warning")
    if checked.faults:
        say(f"{count(len(checked.faults), 'fault')}, {warnings}")
    else:
        say(f"no faults, {warnings}: `bazaar quote {market}` says what it costs, `bazaar run {market}` begins")


def _show_profile(profile: MarketProfile) -> None:
    from databazaar.cli.screen import console, print_lines, say, table
    from databazaar.display import listed
    from databazaar.reports.words import percent

    screen = console()
    say(f"How your columns are read, to predict {profile.target!r} ({profile.task})")
    columns = [
        (column.name, column.understood + (f" ({column.why})" if column.why else ""), column.example)
        for column in profile.columns
    ]
    screen.print(table(("column", "read as", "such as"), columns[:MOST_COLUMNS], words=range(3)))
    if len(columns) > MOST_COLUMNS:
        say(f"{len(columns) - MOST_COLUMNS:,} more columns stand in the JSON (--json)")
    say("The tables, against your hold-out")
    heads = ("table", "rows", "empty", "unseen", "outside", "shift", "copied", "repeated")
    rows = [
        (
            one.id,
            f"{one.rows:,}",
            *(percent(share, 1) for share in (one.missing, one.unseen, one.outside)),
            f"{one.shift:.1f}",
            f"{one.copied:,}",
            f"{one.repeated:,}",
        )
        for one in profile.tables
    ]
    screen.print(table(heads, rows))
    if profile.classes:
        first = profile.classes[:MOST_CLASSES]
        say("The share of each class" if first == profile.classes else "The most frequent classes")
        shares = [(t.id, *(percent(t.balance.get(name, 0.0), 1) for name in first)) for t in profile.tables]
        screen.print(table(("table", *first), shares))
    for ids, warnings in profile.remarks:
        print_lines(listed(ids, MOST_NAMES), warnings)
