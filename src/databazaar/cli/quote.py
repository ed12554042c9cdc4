"""`bazaar quote`: what a market will cost, before a coin is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = ("bazaar quote market.toml", "bazaar quote market.toml --json")


def quote(
    market: Annotated[Path, typer.Argument(help="The market.toml to look at.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")] = False,
) -> None:
    """Says what a run will cost before it begins: rounds, exploration, who can be asked, and what stays behind.

    Nothing is trained, and no file of a provider is read unless it is paid by the row. Amounts in JSON are minor units.
    """
    from databazaar.cli import quote_tables
    from databazaar.config.quote import market_quote

    found = market_quote(market)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        quote_tables.show(found, market)
