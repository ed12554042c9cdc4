"""Before anything is bought: `bazaar check` finds the faults of a market's files, `bazaar quote` says what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from databazaar.cli.options import AsJson, Market
from databazaar.cli.screen import console, print_lines, say, table
from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.reports.words import amount, count, percent

if TYPE_CHECKING:
    from databazaar.config.check import Checked
    from databazaar.data.profile_record import MarketProfile
    from databazaar.market.quoting.simulation import Outlook
    from databazaar.money import Currency

CHECK_EXAMPLES = ("bazaar check market.toml", "bazaar check market.toml --json")
QUOTE_EXAMPLES = ("bazaar quote market.toml", "bazaar quote market.toml --json")
MOST_COLUMNS, MOST_CLASSES, MOST_NAMES = 40, 6, 4
MOST_PROVIDERS, MOST_CHANGES = 20, 2
"""So many are shown; all of them stand in the JSON."""


def check(market: Market, as_json: AsJson = False) -> None:
    """Finds every fault of a market's settings and files, and compares each table with your own.

    Exit code 2 where a run would be refused; warnings do not count.
    """
    from databazaar.config.check import check_market

    checked = check_market(market)
    if as_json:
        typer.echo(json.dumps(checked.to_dict()))
    else:
        _show_checked(checked, market)
    raise typer.Exit(BazaarError.exit_code if checked.faults else 0)


def _show_checked(checked: Checked, market: Path) -> None:
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
    screen = console()
    say(f"How your columns are read, to predict {profile.target!r} ({profile.task})")
    columns = [
        (column.name, column.understood + (f" ({column.why})" if column.why else ""), column.example)
        for column in profile.columns
    ]
    screen.print(table(("column", "read as", "such as"), columns[:MOST_COLUMNS], words=range(3), wrapped=(1, 2)))
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


def quote(market: Market, as_json: AsJson = False) -> None:
    """Says what a run will cost before it begins: rounds, exploration, who can be asked, and what stays behind.

    Nothing is trained, and no file of a provider is read unless it is paid by the row. Amounts in JSON are minor units.
    """
    from databazaar.config.quote import market_quote

    found = market_quote(market)
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    for about, sentence in found.facts().items():
        say(f"{about:<15} {sentence}")
    say("")
    say(f"Who can be asked, in {found.currency.name}; accesses and pay in the median of the simulated runs")
    heads = ("provider", "price", "later", "cap", "accesses", "pay", "at most", "status")
    rows = [_cells(found.currency, provider) for provider in found.providers[:MOST_PROVIDERS]]
    console().print(table(heads, rows, words=(0, 2, 7), wrapped=(2, 7)))
    if len(found.providers) > MOST_PROVIDERS:
        say(f"{len(found.providers) - MOST_PROVIDERS:,} more providers stand in the JSON (--json)")
    for warning in found.warnings:
        say(f"- {warning}")
    say(f"{count(len(found.warnings), 'warning')}: `bazaar run {market}` begins")


def _cells(currency: Currency, provider: Outlook) -> list[str]:
    changes = [f"{amount(currency, change.price)} from {change.from_round + 1}" for change in provider.price_changes]
    return [
        shown(provider.id, 28),
        amount(currency, provider.price),
        listed(changes, MOST_CHANGES),
        "" if provider.most_accesses is None else f"{provider.most_accesses:,}",
        f"{provider.accesses.median:,}",
        amount(currency, provider.pay.median),
        amount(currency, provider.pay.high),
        provider.status,
    ]
