"""What a run prints at its end: who was paid what and why, and what it was worth."""

from __future__ import annotations

import math

from rich.table import Table

from databazaar.cli.screen import table
from databazaar.display import shown
from databazaar.reports.per_coin import PerCoin
from databazaar.reports.words import count
from databazaar.runs.explanation import Kind
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.runs.report import Report

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
    lines, per_coin, amount = report.lines, PerCoin.of(report), report.currency.amount
    kept = {} if report.defended is None else {one.provider: one for one in report.defended.stands}
    back = () if not kept else ("returned",) if report.closed else ("held", "returned")
    told = ("what it sells",) if notes else (f"gain per\n{shown(per_coin.unit, WIDEST)}", "why so often")
    heads = ("provider", "accesses", "pay", *back, *told)
    places, rows = lines.best_paid(MOST_LINES if lines.many else None, everybody=not lines.many), []
    for place in places:
        payout, one = report.payouts[place], report.brought[place]
        why = [notes.get(payout.provider, "")] if notes else [per_coin.plain(one.gain_per_coin), WHY[one.why.kind]]
        amounts = [getattr(kept[payout.provider], name) for name in back]
        rows.append((payout.provider, payout.accesses, *map(amount, (payout.pay, *amounts)), *why))
    if lines.many:
        others = lines.others(places, count(len(lines) - len(places), "other"))
        rows.append((others.title, others.accesses, amount(others.pay)))
    last = len(heads) - 1
    wrapped = range(last + 1 - len(told), last + 1)
    return table(heads, rows, f"Who was paid what, in {report.currency.name}", words=(0, last), wrapped=wrapped)


def worth_table(worth: PurchaseEvaluation) -> Table:
    """The bought model beside what there could have been, on the audit rows."""
    names = [name for name in worth.bought.metrics if name != "brier"]  # a terminal has 80 columns
    heads = ("", *(name.replace("_", " ") for name in names), f"ahead in {worth.loss_name}")
    rows = []
    for judged in (worth.bought, *worth.others):
        cells = [f"{judged.metrics[name]:.4f}" if math.isfinite(judged.metrics[name]) else "–" for name in names]
        known = judged.ahead is not None and judged.error is not None
        rows.append((judged.title, *cells, f"{judged.ahead:+.4f} ± {judged.error:.4f}" if known else ""))
    title = f"Was it worth it? On {worth.rows:,} audit rows"
    return table(heads, rows, title, wrapped=range(1, len(heads)))
