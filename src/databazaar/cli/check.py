"""`bazaar check`: all faults of a market's files at once, and what its tables are like, before anything is bought."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = ("bazaar check market.toml", "bazaar check market.toml --json")
AT_FAULT = 2


def check(
    market: Annotated[Path, typer.Argument(help="The market.toml to look at.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")] = False,
) -> None:
    """Finds every fault of a market's settings and files, and compares each table with your own.

    Exit code 2 where a run would be refused; warnings do not count.
    """
    from databazaar.cli import check_tables
    from databazaar.config.check import check_market

    checked = check_market(market)
    if as_json:
        typer.echo(json.dumps(checked.to_dict()))
    else:
        check_tables.show(checked, market)
    raise typer.Exit(AT_FAULT if checked.faults else 0)
