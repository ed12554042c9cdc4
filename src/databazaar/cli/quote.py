"""`bazaar quote`: what a market will cost, before a coin is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.options import AsJson

if TYPE_CHECKING:
    from databazaar.market.quoting import Quote
    from databazaar.market.quoting.simulation import Outlook

EXAMPLES = ("bazaar quote market.toml", "bazaar quote market.toml --json")
MOST_ROWS = 30
"""More providers than this are told by what they have in common; all of them stand in the JSON."""
MOST_CHANGES = 2


def quote(
    market: Annotated[Path, typer.Argument(help="The market.toml to look at.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Says what a run will cost before it begins: rounds, exploration, who can be asked, and what stays behind.

    Nothing is trained, and no file of a provider is read unless it is paid by the row. Amounts in JSON are minor units.
    """
    from databazaar.config.quote import market_quote

    found = market_quote(market)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        show(found, market)


def show(quote: Quote, market: Path) -> None:
    """Facts, table, warnings, and how to go on."""
    from databazaar.cli.screen import console, say, table
    from databazaar.reports.words import count

    for about, sentence in quote.facts().items():
        say(f"{about:<15} {sentence}")
    say("")
    say(f"Who can be asked, in {quote.currency.name}; accesses and pay in the median of the simulated runs")
    many = len(quote.providers) > MOST_ROWS
    heads, rows = _statuses(quote) if many else _providers(quote)
    left = {place for place, head in enumerate(heads) if head in ("provider", "later", "status")}
    console().print(table(heads, rows, words=left, wrapped=left - {0}))
    if many:
        say(f"{len(quote.providers):,} providers, one by one, stand in the JSON (--json)")
    for warning in quote.warnings:
        say(f"- {warning}")
    say(f"{count(len(quote.warnings), 'warning')}: `bazaar run {market}` begins")


def _providers(quote: Quote) -> tuple[list[str], list[list[str]]]:
    """Everybody, the cheapest first; columns that say nothing are left out."""
    heads = ["provider", "price", "later", "cap", "accesses", "pay", "at most", "status"]
    absent = {"later"} if not any(p.price_changes for p in quote.providers) else set()
    absent |= {"cap"} if all(p.most_accesses is None for p in quote.providers) else set()
    kept = [place for place, head in enumerate(heads) if head not in absent]
    rows = [_cells(quote, provider) for provider in quote.providers]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _statuses(quote: Quote) -> tuple[list[str], list[list[str]]]:
    """How many providers have each status, and what they ask."""
    from databazaar.reports.words import amount

    groups: dict[str, list[Outlook]] = {}
    for provider in quote.providers:
        status, *later = provider.status.split(" from round")
        groups.setdefault(f"{status} later on" if later else status, []).append(provider)
    rows = []
    for status, group in groups.items():
        prices = sorted(provider.price for provider in group)
        asked = (prices[0], prices[len(prices) // 2], prices[-1], max(provider.pay.high for provider in group))
        rows.append([status, f"{len(group):,}", *(amount(quote.currency, price) for price in asked)])
    return ["status", "how many", "cheapest", "middle", "dearest", "pay at most"], rows


def _cells(quote: Quote, provider: Outlook) -> list[str]:
    from databazaar.display import shown
    from databazaar.reports.words import amount

    currency, changes = quote.currency, provider.price_changes
    announced = [f"{amount(currency, change.price)} from {change.from_round + 1}" for change in changes]
    more = [f"{len(announced) - MOST_CHANGES:,} more"] if len(announced) > MOST_CHANGES else []
    return [
        shown(provider.id, 28),
        amount(currency, provider.price),
        ", ".join(announced[:MOST_CHANGES] + more),
        "" if provider.most_accesses is None else f"{provider.most_accesses:,}",
        f"{provider.accesses.median:,}",
        amount(currency, provider.pay.median),
        amount(currency, provider.pay.high),
        provider.status,
    ]
