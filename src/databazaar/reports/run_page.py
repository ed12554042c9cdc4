"""The report of a run as one HTML file: the numbers and words that its template shows."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from databazaar.codes import Code
from databazaar.data.profile_record import MarketProfile, TableProfile
from databazaar.defence.words import rules_of
from databazaar.registry import MODULE, MissingRuleError
from databazaar.reports.figures import draw_all, loss_curve
from databazaar.reports.pages import page
from databazaar.reports.per_coin import PerCoin
from databazaar.reports.statement import owner_totals
from databazaar.reports.style import inline_svg
from databazaar.reports.words import count
from databazaar.runs.defended import Defended, Stand
from databazaar.runs.payouts import MOST_NAMED, MOST_STATED, Group
from databazaar.runs.report import Payout, Report
from databazaar.utilities import FUNCTION, UTILITIES

MOST_REASONS = 20
MOST_RULINGS = 200
NOUNS = {"sampler": "sampler", "aggregator": "aggregator", "payment": "payment", "stops": "stop", "utility": "utility"}
"""The rules of a market as a report holds them, and what one of each is called."""


@dataclass(frozen=True)
class AuditView:
    """What the audit found: whether all held, how many entries it checked, and its own words."""

    ok: bool
    checked: int
    message: str


@dataclass(frozen=True)
class RuleView:
    """One rule of the market: its settings as written, and the package or the module that brings it if not ours."""

    noun: str
    kind: str
    settings: tuple[tuple[str, str], ...]
    package: str = ""
    module: str = ""


@dataclass(frozen=True)
class FailureView:
    """Accesses that were voided for the same reason, and whose they were."""

    reason: str
    accesses: int
    providers: tuple[str, ...]


def render(
    report: Report,
    *,
    title: str,
    audit: AuditView | None = None,
    profile: MarketProfile | None = None,
    drawn: Mapping[str, Figure] | None = None,
) -> str:
    """The whole page; the same arguments give the same bytes. `drawn` are the figures, where they are drawn already."""
    drawings = draw_all(report) if drawn is None else drawn
    reasons = failures(report)
    return page(
        "databazaar/run.html.jinja",
        title=title,
        report=report,
        audit=audit,
        status=str(Code(report.status)),
        standing=standing(report),
        utility=report.utilities,
        loss=loss_curve(report),
        change=_change(report),
        meaning=meaning(report),
        best=best_paid(report),
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
    places = lines.best_paid(MOST_NAMED if many else None, everybody=not many)
    owners = owner_totals(report)
    found: dict[str, Any] = {
        "payouts": [report.payouts[place] for place in places],
        "whole": lines.whole,
        "all_owners": len(set(lines.owners)),
        "owners": owners[:MOST_NAMED] if many else owners,
        "brought": {lines.ids[place]: report.brought[place] for place in places},
        "many": many,
    }
    if many:
        found["others"] = lines.others(places, count(len(lines) - len(places), "other"))
        found["other_owners"] = _other_owners(found["whole"], owners, found["all_owners"])
        found["stated"] = len(lines) <= MOST_STATED
    return found


def _other_owners(whole: Group, owners: Sequence[Mapping[str, Any]], all_owners: int) -> Group | None:
    """All owners but those that are named; None where all are."""
    if len(owners) <= MOST_NAMED and all_owners == len(owners):
        return None
    named = owners[:MOST_NAMED]
    left = {name: getattr(whole, name) - sum(one[name] for one in named) for name in ("providers", "accesses", "pay")}
    return Group(count(all_owners - len(named), "other"), failures=0, **left)


def defence(report: Report) -> dict[str, Any]:
    """What the section on the defence shows: flags first, and everybody of whom there is something to say."""
    defended = report.defended
    if defended is None:
        return {"defended": None}
    kinds = ("leak", "no-data", "in-doubt", "alike")
    told = sorted((one for one in defended.rulings if one.what in kinds), key=lambda one: kinds.index(one.what))
    return {
        "defended": defended,
        "stands": _stands(report, defended),
        "rulings": told[:MOST_RULINGS],
        "all_rulings": len(told),
        "cleared": {one.provider: one.round for one in defended.rulings if one.what == "cleared"},
        "lost": sum(one.lost for one in defended.stands),
        "held_back": sum(one.held for one in defended.stands),
        "defence_rules": rules_of(defended.defence),
    }


def _tables(report: Report, profile: MarketProfile | None) -> Sequence[TableProfile]:
    """The tables before the purchase: all, or of many the consumer's own and those of the best paid."""
    if profile is None or not report.lines.many:
        return () if profile is None else profile.tables
    left_out = set(report.lines.ids) - {report.lines.ids[place] for place in report.lines.best_paid(MOST_NAMED)}
    return [table for table in profile.tables if table.id not in left_out]


def _stands(report: Report, defended: Defended) -> Sequence[Stand]:
    """How providers stand: everybody, or of many the best paid."""
    if not report.lines.many:
        return defended.stands
    return [defended.stands[place] for place in report.lines.best_paid(MOST_NAMED)]


def standing(report: Report) -> Literal["good", "bad", "open"]:
    """Whether a run came to a good end, a bad one, or to none so far."""
    if not report.closed:
        return "open"
    return "good" if report.status == "settled" else "bad"


def best_paid(report: Report) -> Payout | None:
    """The provider that earned most, None where nobody earned."""
    pay = report.lines.pay
    return report.payouts[int(pay.argmax())] if pay.any() else None


def rules(report: Report) -> list[RuleView]:
    """All rules of the market, built-in or not, shown alike."""
    given = [(NOUNS[noun], found) for noun in NOUNS for found in _as_list(report.rules.get(noun))]
    return [rule_view(noun, settings) for noun, settings in given]


def failures(report: Report) -> list[FailureView]:
    """Accesses that were voided, grouped by reason, most frequent first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for round, place, reason in report.columns.failures:
        groups[common_reason(str(reason), report.payouts[place].provider, round)].append(place)
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [
        FailureView(reason, len(who), tuple(report.payouts[provider].provider for provider in dict.fromkeys(who)))
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
    """What the utility is, in words, by the terms."""
    where = "It is measured on the consumer’s own hold-out rows; higher is better."
    found = report.rules.get("utility")
    settings: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    kind = settings.get("kind")
    try:
        return f"Utility is {UTILITIES.find(str(kind)).meaning}. {where}"
    except MissingRuleError:
        named = settings.get("name") if kind == FUNCTION else kind
        return f"Utility is {f'the consumer’s own, {named}' if named else 'what the consumer says'}. {where}"


def _as_list(found: Any) -> list[Mapping[str, Any]]:
    return list(found) if isinstance(found, list | tuple) else [] if found is None else [found]


def rule_view(noun: str, settings: Mapping[str, Any]) -> RuleView:
    """One rule as a page shows it, without settings that say nothing."""
    origin = str(settings.get("from", ""))
    outside = {"module": origin.removeprefix(MODULE)} if origin.startswith(MODULE) else {"package": origin}
    given = {name: value for name, value in settings.items() if name not in ("kind", "from") and value is not None}
    own = [(name.replace("_", " "), value) for name, value in given.items()]
    written = tuple((name, _setting(value)) for name, value in own)
    return RuleView(noun, str(settings.get("kind", "unknown")), written, **outside)


def _setting(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str | int):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _change(report: Report) -> str:
    """What the utility did, in one word."""
    start, end = report.utilities[0], report.final_utility
    if not (math.isfinite(start) and math.isfinite(end)):
        return "lost"
    return "rose" if end > start else "fell" if end < start else "stayed"
