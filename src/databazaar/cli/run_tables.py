"""What a run prints at its end: who was paid what and why, and what it was worth."""

from __future__ import annotations

import math

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from databazaar.display import shown
from databazaar.reports.per_coin import PerCoin
from databazaar.reports.wording import count, percent
from databazaar.runs.report import Report
from databazaar.runs.why import Kind
from databazaar.runs.worth import Judged, Worth

WIDEST = 16
MOST_LINES = 20
"""So many of the best paid have a line where providers are many."""
WHY: dict[Kind, str] = {
    "only": "the only one",
    "flagged": "flagged",
    "used-up": "used up",
    "too-dear": "too dear",
    "alike": "all asked alike",
    "failed": "replies failed",
    "dearer": "became dearer",
    "cheaper": "became cheaper",
    "few": "too few to tell",
    "better": "more for its money",
    "cheap": "cheaper, as good",
    "worse": "less for its money",
    "dear": "dearer, no better",
    "unclear": "cannot be told",
}
"""Why a provider was asked as often as it was, for a terminal of 80 columns; the report has the whole sentence."""


def payout_table(report: Report, notes: dict[str, str] | None) -> Table:
    """Everybody's accesses and pay, and `notes` on what they sell or else gain per coin and why they were asked.
    Of many providers the best paid have a line, and all others one."""
    table = Table(
        title=Text(f"Who was paid what, in {shown(report.currency.name)}"), title_justify="left", box=SIMPLE_HEAD
    )
    table.add_column("provider", no_wrap=True)
    kept = {} if report.defended is None else {one.provider: one for one in report.defended.stands}
    back = ("returned",) if report.closed else ("held", "returned")
    for name in ("accesses", "pay", *(back if kept else ())):
        table.add_column(name, justify="right", no_wrap=True)
    per_coin = PerCoin.of(report)
    if notes:
        table.add_column("what it sells")
    else:
        table.add_column(f"gain per\n{shown(per_coin.unit, WIDEST)}", justify="right")
        table.add_column("why so often")
    lines = report.lines
    places = lines.best_paid(MOST_LINES if lines.many else None, everybody=not lines.many)
    for place in places:
        payout, one = report.payouts[place], report.brought[place]
        why = [notes.get(payout.provider, "")] if notes else [per_coin.plain(one.gain_per_coin), WHY[one.why.kind]]
        amounts = [getattr(kept[payout.provider], name) for name in back] if kept else []
        cells = (payout.provider, payout.accesses, *map(report.currency.amount, (payout.pay, *amounts)), *why)
        table.add_row(*(Text(shown(cell)) for cell in cells))
    if lines.many:
        others = lines.others(places, count(len(lines) - len(places), "other"))
        table.add_row(others.title, str(others.accesses), report.currency.amount(others.pay))
    return table


def group_table(report: Report) -> Table:
    """Everybody in groups, for markets of many providers."""
    table = Table(title=Text("All providers, in groups"), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("group", no_wrap=True)
    for name in ("providers", "accesses", "failures", "pay", "of spend"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in (*report.lines.groups, report.lines.whole):
        counts = (group.providers, group.accesses, group.failures)
        money = report.currency.amount(group.pay), percent(group.pay, report.spent)
        table.add_row(group.title, *(f"{one:,}" for one in counts), *money)
    return table


def worth_table(worth: Worth) -> Table:
    """The bought model beside what there could have been, on the audit rows."""
    table = Table(title=f"Was it worth it? On {worth.rows:,} audit rows", title_justify="left", box=SIMPLE_HEAD)
    names = [name for name in worth.bought.metrics if name != "brier"]  # a terminal has 80 columns
    table.add_column("", no_wrap=True)
    for name in (*(name.replace("_", " ") for name in names), f"ahead in {worth.loss_name}"):
        table.add_column(name, justify="right")
    for judged in (worth.bought, *worth.others):
        cells = [f"{judged.metrics[name]:.4f}" if math.isfinite(judged.metrics[name]) else "–" for name in names]
        table.add_row(*(Text(shown(cell)) for cell in (judged.title, *cells, _ahead(judged))))
    return table


def _ahead(judged: Judged) -> str:
    return "" if judged.ahead is None or judged.error is None else f"{judged.ahead:+.4f} ± {judged.error:.4f}"
