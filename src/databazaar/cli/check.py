"""`bazaar check`: all faults of a market's files at once, and what its tables are like, before anything is bought."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from databazaar.config.check import Checked
    from databazaar.data.profile_record import MarketProfile, TableProfile

EXAMPLES = ("bazaar check market.toml", "bazaar check market.toml --json")
MOST_COLUMNS = 40
AT_FAULT = 2


def check(
    market: Annotated[Path, typer.Argument(help="The market.toml to look at.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")] = False,
) -> None:
    """Finds every fault of a market's settings and files, and compares each provider's table with yours."""
    from rich.console import Console

    from databazaar.config.check import check_market

    checked = check_market(market)
    if as_json:
        typer.echo(json.dumps(checked.to_dict()))
    else:
        _show(Console(), checked, market)
    raise typer.Exit(AT_FAULT if checked.faults else 0)


def _show(console: Console, checked: Checked, market: Path) -> None:
    if checked.profile is not None:
        _show_columns(console, checked.profile)
        _show_tables(console, checked.profile)
        for table in checked.profile.tables:
            _list(console, f"{table.id} ({table.file})", table.warnings)
    _list(console, "To be mended before a run:", checked.faults)
    if checked.estimate is not None:
        _say(console, f"A run: {checked.estimate.sentence}")
    warned = len(checked.warnings)
    count = f"{warned} warning{'' if warned == 1 else 's'}"
    if checked.faults:
        _say(console, f"{len(checked.faults)} fault{'' if len(checked.faults) == 1 else 's'} and {count}")
    else:
        _say(console, f"no faults, {count}: `bazaar run {market}` begins")


def _show_columns(console: Console, profile: MarketProfile) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from databazaar.reports.wording import printable

    _say(console, f"How your columns are read, to predict {printable(profile.target)!r} ({profile.task})")
    table = Table(box=SIMPLE_HEAD)
    for head in ("column", "read as", "such as"):
        table.add_column(head, no_wrap=True)
    for column in profile.columns[:MOST_COLUMNS]:
        why = f" ({column.why})" if column.why else ""
        table.add_row(Text(printable(column.name)), Text(column.understood + why), Text(printable(column.example)))
    console.print(table)
    if len(profile.columns) > MOST_COLUMNS:
        _say(console, f"{len(profile.columns) - MOST_COLUMNS:,} more columns stand in the JSON (--json)\n")


def _show_tables(console: Console, profile: MarketProfile) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from databazaar.reports.wording import printable

    _say(console, "The tables, against your hold-out")
    table = Table(box=SIMPLE_HEAD)
    table.add_column("table", no_wrap=True)
    for head in ("rows", "empty", "unseen", "outside", "shift", "copied", "repeated"):
        table.add_column(head, justify="right", no_wrap=True)
    if profile.classes:
        table.add_column("classes")
    for line in profile.tables:
        cells = [Text(cell) for cell in table_cells(line).values()]
        balance = [Text(printable(balance_text(line.balance, profile.classes)))] if profile.classes else []
        table.add_row(Text(printable(line.id)), *cells, *balance)
    console.print(table)


def table_cells(table: TableProfile) -> dict[str, str]:
    """One table's numbers as a line shows them."""
    shares = {"empty": table.missing, "unseen": table.unseen, "outside": table.outside}
    return {
        "rows": f"{table.rows:,}",
        **{name: f"{share:.1%}" for name, share in shares.items()},
        "shift": f"{table.shift:.1f}",
        "copied": f"{table.copied:,}",
        "repeated": f"{table.repeated:,}",
    }


def balance_text(balance: Mapping[str, float], classes: tuple[str, ...], most: int = 3) -> str:
    """The shares of the classes, the hold-out's most frequent first.

    >>> balance_text({"no": 0.75, "yes": 0.25}, ("no", "yes"))
    'no 75%, yes 25%'
    """
    names = [*classes, *(name for name in balance if name not in classes)]
    shown = [f"{name} {balance.get(name, 0.0):.0%}" for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def _list(console: Console, head: str, sentences: tuple[str, ...]) -> None:
    if sentences:
        _say(console, head)
        for sentence in sentences:
            _say(console, f"- {sentence}")
        _say(console, "")


def _say(console: Console, text: str) -> None:
    from databazaar.reports.wording import printable

    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
