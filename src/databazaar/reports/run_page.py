"""What people read of a run: the report as one HTML file, and beside it the statement and the figures."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from databazaar.codes import Code
from databazaar.data.profile_record import MarketProfile, TableProfile
from databazaar.defence.words import rules_of
from databazaar.errors import LedgerError
from databazaar.files import write_whole
from databazaar.ledger import Audit
from databazaar.registry import MODULE, MissingRuleError
from databazaar.reports.figures import draw_all, loss_curve, save_png
from databazaar.reports.pages import page
from databazaar.reports.statement import owner_totals, statement_csv, statement_dict
from databazaar.reports.style import inline_svg
from databazaar.reports.words import PerCoin
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import CSV, JSON, PAGE
from databazaar.runs.payouts import MOST_NAMED
from databazaar.runs.report import Report
from databazaar.utilities import FUNCTION, UTILITIES

MOST_REASONS = 20
MOST_RULINGS = 200
NOUNS = {
    "sampler": "sampler",
    "learner": "learner",
    "aggregator": "aggregator",
    "payment": "payment",
    "stops": "stop",
    "utility": "utility",
}
"""The rules of a market as a report holds them, and what one of each is called."""


def render(
    report: Report,
    *,
    title: str,
    audit: Audit | None = None,
    profile: MarketProfile | None = None,
    drawn: Mapping[str, Figure] | None = None,
) -> str:
    """The whole page; the same arguments give the same bytes. `drawn` are the figures, where they are drawn already."""
    drawings = draw_all(report) if drawn is None else drawn
    reasons, pay = failures(report), report.lines.pay
    return page(
        "databazaar/run.html.jinja",
        title=title,
        report=report,
        audit=audit,
        status=str(Code(report.status)),
        standing="open" if not report.closed else "good" if report.status == "settled" else "bad",
        utility=report.utilities,
        loss=loss_curve(report),
        change=_change(report),
        meaning=meaning(report),
        best=report.payouts[int(pay.argmax())] if pay.any() else None,
        starts_even=bool(np.ptp(report.distributions[0]) < 1e-9),
        drawings={name: inline_svg(figure, f"fig-{name}") for name, figure in drawings.items()},
        **who_was_paid(report),
        per_coin=PerCoin.of(report),
        paid_by=(report.rules.get("payment") or {}).get("kind", "price-per-access"),
        reasons=reasons[:MOST_REASONS],
        all_reasons=len(reasons),
        rules=rules(report),
        worth=report.worth,
        profile=profile,
        tables=_tables(report, profile),
        **defence(report),
    )


def who_was_paid(report: Report) -> dict[str, Any]:
    """The lines of the tables of providers and owners. Of many providers the best paid have one, and `others` one."""
    lines, many = report.lines, report.lines.many
    places, others = lines.listed(MOST_NAMED)
    owners = owner_totals(report)
    return {
        "payouts": [report.payouts[place] for place in places],
        "whole": lines.whole,
        "all_owners": len(set(lines.owners)),
        "owners": owners[:MOST_NAMED] if many else owners,
        "brought": {lines.ids[place]: report.brought[place] for place in places},
        "many": many,
        "others": others,
    }


def defence(report: Report) -> dict[str, Any]:
    """What the section on the defence shows: flags first, and everybody of whom there is something to say."""
    defended = report.defended
    if defended is None:
        return {"defended": None}
    kinds = ("leak", "no-data", "in-doubt", "alike")
    told = sorted((one for one in defended.rulings if one.what in kinds), key=lambda one: kinds.index(one.what))
    places = report.lines.best_paid(MOST_NAMED) if report.lines.many else range(len(defended.stands))
    return {
        "defended": defended,
        "stands": [defended.stands[place] for place in places],
        "rulings": told[:MOST_RULINGS],
        "all_rulings": len(told),
        "cleared": {one.provider: one.round for one in defended.rulings if one.what == "cleared"},
        "lost": sum(one.lost for one in defended.stands),
        "held_back": sum(one.held_back for one in defended.stands),
        "defence_rules": rules_of(defended.defence),
    }


def _tables(report: Report, profile: MarketProfile | None) -> Sequence[TableProfile]:
    """The tables before the purchase: all, or of many the consumer's own and those of the best paid."""
    if profile is None or not report.lines.many:
        return () if profile is None else profile.tables
    left_out = set(report.lines.ids) - {report.lines.ids[place] for place in report.lines.best_paid(MOST_NAMED)}
    return [table for table in profile.tables if table.id not in left_out]


def rules(report: Report) -> list[dict[str, Any]]:
    """All rules of the market, built-in or not, shown alike."""
    found = {noun: report.rules.get(name) or [] for name, noun in NOUNS.items()}
    if found["learner"]:  # the paper's has no entry, and is the only one that aggregates
        del found["aggregator"]
    return [_view(noun, one) for noun, rule in found.items() for one in ([rule] if isinstance(rule, dict) else rule)]


def failures(report: Report) -> list[dict[str, Any]]:
    """Accesses that were voided, grouped by reason, most frequent first, and whose they were."""
    groups: dict[str, list[int]] = defaultdict(list)
    for round, place, reason in report.columns.failures:
        groups[common_reason(str(reason), report.lines.ids[place], round)].append(place)
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [
        {"reason": reason, "accesses": len(who), "providers": [report.lines.ids[place] for place in dict.fromkeys(who)]}
        for reason, who in ranked
    ]


def common_reason(reason: str, provider: str, round: int) -> str:
    """The reason without the provider and the round that it names: others failed the same way, and it did in others.

    >>> common_reason("provider north, round 7: ValueError: no rows in round 7", "north", 7)
    'ValueError: no rows in this round'
    """
    for where in (f"provider {provider}, round {round}: ", f"provider {provider}: "):
        reason = reason.removeprefix(where)
    return re.sub(rf"\bround {round}\b", "this round", reason)


def meaning(report: Report) -> str:
    where = "It is measured on the consumer’s own hold-out rows; higher is better."
    found = report.rules.get("utility")
    settings: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    kind = settings.get("kind")
    try:
        return f"Utility is {UTILITIES.find(str(kind)).meaning}. {where}"
    except MissingRuleError:
        named = settings.get("name") if kind == FUNCTION else kind
        return f"Utility is {f'the consumer’s own, {named}' if named else 'what the consumer says'}. {where}"


def _view(noun: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One rule as a page shows it, without settings that say nothing, and the package or the module that brings it if
    not ours."""
    origin = str(settings.get("from", ""))
    module = origin.removeprefix(MODULE) if origin.startswith(MODULE) else ""
    given = {name: value for name, value in settings.items() if name not in ("kind", "from") and value is not None}
    written = [(name.replace("_", " "), _setting(value)) for name, value in given.items()]
    brought = {"package": "" if module else origin, "module": module}
    return {"noun": noun, "kind": str(settings.get("kind", "unknown")), "settings": written, **brought}


def _setting(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str | int):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _change(report: Report) -> str:
    start, end = report.utilities[0], report.final_utility
    if not (math.isfinite(start) and math.isfinite(end)):
        return "lost"
    return "rose" if end > start else "fell" if end < start else "stayed"


def write_report(folder: RunFolder, out: Path | None = None, *, others_tables: bool = True) -> Path:
    """The HTML report, the figures as PNG, and the statement as CSV and JSON; of an unfinished run, so far. With `out`,
    the page alone is written there, and nothing into the run's folder. Without `others_tables` the page says nothing of
    what providers' tables are like: they may not be the reader's to know. Where the audit fails the page says so, and
    the statement that is there is left alone."""
    report, found = folder.report_and_audit()
    drawn = draw_all(report)
    page = page_of(folder, report, found, folder.title, drawn, others_tables)
    if out is not None:
        write_whole(out, page.encode())
    else:
        save_png(drawn, folder.path / "figures", within=folder.path)
        for name, text in statements_of(report).items() if found.ok else ():
            write_whole(folder.path / name, text.encode(), within=folder.path)
        write_whole(folder.path / PAGE, page.encode(), within=folder.path)
    written = out or folder.path / PAGE
    if not found.ok:
        raise LedgerError(f"{written} says that the audit fails, and no statement is made: {found.message}")
    return written


def statements_of(report: Report) -> dict[str, str]:
    return {CSV: statement_csv(report), JSON: json.dumps(statement_dict(report), indent=2)}


def page_of(
    folder: RunFolder,
    report: Report,
    found: Audit,
    title: str,
    drawn: Mapping[str, Figure] | None = None,
    others_tables: bool = True,
) -> str:
    profile = folder.profile()
    if profile is not None and not others_tables:
        profile = profile.model_copy(update={"providers": ()})
    return render(report, title=title, audit=found, profile=profile, drawn=drawn)
