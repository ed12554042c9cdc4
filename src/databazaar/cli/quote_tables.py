"""A quote in the terminal: sentences, who can be asked, and what to mend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from databazaar.cli.screen import LONGEST, console
from databazaar.display import shown
from databazaar.market.quoting import Quote
from databazaar.market.quoting.simulation import Outlook
from databazaar.reports.wording import amount, count

MOST_ROWS = 30
"""More providers than this are told by what they have in common; all of them stand in the JSON."""
MOST_CHANGES = 2
NAME_WIDTH = 28
WORDS = ("provider", "later", "status")
"""Columns of words; the others are numbers."""


def show(quote: Quote, market: Path) -> None:
    """Facts, table, warnings, and how to go on."""
    screen = console()
    screen.print(fact_table(quote))
    _say(screen, "")
    _say(screen, f"Who can be asked, in {quote.currency.name}; accesses and pay in the median of the simulated runs")
    screen.print(provider_table(quote) if len(quote.providers) <= MOST_ROWS else status_table(quote))
    if len(quote.providers) > MOST_ROWS:
        _say(screen, f"{len(quote.providers):,} providers, one by one, stand in the JSON (--json)")
    for warning in quote.warnings:
        _say(screen, f"- {warning}")
    _say(screen, f"{count(len(quote.warnings), 'warning')}: `bazaar run {market}` begins")


def fact_table(quote: Quote) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for about, sentence in quote.facts().items():
        table.add_row(about, Text(shown(sentence, LONGEST)))
    return table


def provider_table(quote: Quote) -> Table:
    """Everybody, the cheapest first; columns that say nothing are left out."""
    heads = ["provider", "price", "later", "cap", "accesses", "pay", "at most", "status"]
    rows = [_cells(quote, provider) for provider in quote.providers]
    absent = {"later"} if not any(p.price_changes for p in quote.providers) else set()
    absent |= {"cap"} if all(p.most_accesses is None for p in quote.providers) else set()
    kept = [place for place, head in enumerate(heads) if head not in absent]
    return _table([heads[place] for place in kept], ([row[place] for place in kept] for row in rows))


def status_table(quote: Quote) -> Table:
    """How many providers have each status, and what they ask."""
    groups: dict[str, list[Outlook]] = {}
    for provider in quote.providers:
        status, *later = provider.status.split(" from round")
        groups.setdefault(f"{status} later on" if later else status, []).append(provider)
    rows = []
    for status, group in groups.items():
        prices = sorted(provider.price for provider in group)
        asked = (prices[0], prices[len(prices) // 2], prices[-1], max(provider.pay.high for provider in group))
        rows.append([status, f"{len(group):,}", *(amount(quote.currency, price) for price in asked)])
    return _table(["status", "how many", "cheapest", "middle", "dearest", "pay at most"], rows)


def _cells(quote: Quote, provider: Outlook) -> list[str]:
    currency, changes = quote.currency, provider.price_changes
    announced = [f"{amount(currency, change.price)} from {change.from_round + 1}" for change in changes]
    more = [f"{len(announced) - MOST_CHANGES:,} more"] if len(announced) > MOST_CHANGES else []
    return [
        shown(provider.id, NAME_WIDTH),
        amount(currency, provider.price),
        ", ".join(announced[:MOST_CHANGES] + more),
        "" if provider.most_accesses is None else f"{provider.most_accesses:,}",
        f"{provider.accesses.median:,}",
        amount(currency, provider.pay.median),
        amount(currency, provider.pay.high),
        provider.status,
    ]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in heads:
        words = head in WORDS
        table.add_column(head, justify="left" if words else "right", no_wrap=head not in ("later", "status"))
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    return table


def _say(console: Console, text: str) -> None:
    console.print(shown(text, LONGEST), soft_wrap=True)
