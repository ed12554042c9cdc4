"""The revenue statement, for programs (a dict), and for spreadsheets (CSV): to the consumer of everybody, and what a
provider's own says of the market's defence, which is of itself alone."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from databazaar.defence.words import ANOTHER
from databazaar.display import shown_lines
from databazaar.ledger.record import Curve
from databazaar.row_values import RowSums
from databazaar.runs.attribution import NUMBERS
from databazaar.runs.defended import Ruling
from databazaar.runs.purchase import without_nan
from databazaar.runs.report import Report

ABOUT = ("market", "consumer", "run", "began", "settled")
"""What every statement says of the run that it is for. It is empty where nobody has said it."""
SHARED = "it shares an arm with another provider, and what was held back has been earned once already"
AMOUNTS = ("held_back", "released", "returned", "cut")
"""Of everybody's pay, where there is a defence."""


def heading(report: Report) -> dict[str, Any]:
    """Which run a statement is for, when that was, and what its amounts are in."""
    named = {name: getattr(report, name) for name in ABOUT}
    return {**named, "currency": report.currency.name, "decimals": report.currency.decimals}


def statement_dict(report: Report) -> dict[str, Any]:
    """The settlement as plain data, the best paid first, with what each provider brought: it is the consumer's own.
    Amounts are integers in minor units; `…_amount` is the same in the currency, and `…_text` has its name too. Gains
    are for one unit of the currency, shares are parts of 1."""
    places, defended = report.lines.best_paid(everybody=True), report.defended
    told = {
        **heading(report),
        **in_currency(report, "budget", report.budget),
        **in_currency(report, "spent", report.spent),
        **in_currency(report, "refunded", report.refunded),
        **in_currency(report, "held", report.held),
        "rounds": len(report.rounds),
        "gain_per_coin": report.gain_per_coin,
        "status": report.status,
        "closed": report.closed,
        "model_hash": report.model_hash,
        "ledger_head": report.ledger_head,
        "providers": [
            {
                "provider": payout.provider,
                "owner": payout.owner,
                **in_currency(report, "price", payout.price),
                "accesses": payout.accesses,
                "failures": payout.failures,
                **in_currency(report, "pay", payout.pay),
                **({} if payout.epsilon is None else {"epsilon": payout.epsilon}),
                **standing_of(report, place),
                **{name: getattr(brought, name) for name in NUMBERS},
                "reason": brought.why.kind,
                "why": brought.why.sentence,
            }
            for place, payout, brought in ((place, report.payouts[place], report.brought[place]) for place in places)
        ],
        "owners": owner_totals(report),
    }
    if defended is not None:
        rulings = [{"provider": one.provider, **_verdict(one), "like": one.other} for one in defended.rulings]
        told["defence"] = {"rules": defended.defence.settings(), "verdicts": rulings}
    return told


def in_currency(report: Report, name: str, minor: int) -> dict[str, Any]:
    return {name: minor, f"{name}_amount": report.currency.amount(minor), f"{name}_text": report.currency.format(minor)}


def owner_totals(report: Report) -> list[dict[str, Any]]:
    """What each owner earned with all of its providers, the best paid first."""
    lines, providers, totals = report.lines, Counter(report.lines.owners), dict[str, dict[str, Any]]()
    columns = {"accesses": lines.accesses, "failures": lines.failures, "pay": lines.pay}
    for place, owner in enumerate(lines.owners):
        begin = {"owner": owner, "providers": providers[owner], **dict.fromkeys(columns, 0)}
        total = totals.setdefault(owner, begin)
        for name, column in columns.items():
            total[name] += int(column[place])
    ranked = sorted(totals.values(), key=lambda total: (-total["pay"], total["owner"]))
    return [{**total, **in_currency(report, "pay", total["pay"])} for total in ranked]


def statement_csv(report: Report) -> str:
    """One line a provider; the column `pay` sums to what was spent, in minor units."""
    columns = ["provider", "owner", "accesses", "failures", "price", "price_amount", "pay", "pay_amount"]
    columns += [*standing_columns(report), *NUMBERS, "reason", "why"]
    return table_csv(report, columns, statement_dict(report)["providers"])


def table_csv(report: Report, columns: list[str], lines: list[dict[str, Any]]) -> str:
    """Some lines of a statement. Each also says which run it is of: a line may end up in another table."""
    about = heading(report)
    cells = ([Decimal(line[name]) if name.endswith("_amount") else line[name] for name in columns] for line in lines)
    return csv_text([*columns, *about], ([*row, *about.values()] for row in cells))


def standing_columns(report: Report) -> list[str]:
    return [] if report.defended is None else ["standing", "left_out", "not_new", *AMOUNTS]


def standing_of(report: Report, place: int) -> dict[str, Any]:
    """How one provider stands, and what became of its pay; nothing where the market has no defence."""
    stands = () if report.defended is None else report.defended.stands[place : place + 1]
    return {name: getattr(stand, name) for stand in stands for name in standing_columns(report)}


def row_table(values: RowSums) -> tuple[list[str], list[list[int | float]]]:
    """Columns, and a line for each row that was judged: how often, what it has brought in units of the utility, and by
    how much its loss was below the hold-out's."""
    judged = zip(values.times.tolist(), values.brought.tolist(), values.fit.tolist(), strict=True)
    lines: list[list[int | float]] = [[number, *each] for number, each in enumerate(judged, 1) if each[0]]
    return ["row", "times", "brought", "fit"], lines


def own_defence(report: Report, provider: str) -> dict[str, Any]:
    """What a provider's own statement says: how it stands, every verdict about it with the figure that it rests on and
    how to object, and why held-back pay was settled. It names no other provider, and no figure but the provider's own.
    """
    defended, place = report.defended, report.lines.places[provider]
    if defended is None:
        return {}
    stands, money, curve = standing_of(report, place), report.currency.format, defended.curves[place]
    amounts = {f"{name}_text": money(stands[name]) for name in AMOUNTS}
    verdicts = [
        {**_verdict(one, ANOTHER), **_evidence(one, curve), "how_to_object": objection(report, one)}
        for one in defended.of(provider)
    ]
    told = {**stands, **amounts, "shares_an_arm": bool(defended.stands[place].shares_with)}
    mergers = {one.round: SHARED for one in defended.merged}
    rulings = {one.round: one.sentence(ANOTHER) for one in defended.of(provider) if one.what != "alike"}
    why = {**mergers, **rulings}
    settlements = [
        {
            "round": one.round,
            "released": one.released,
            "amount": one.amount,
            "why": why.get(one.round, "the run ended, and nothing spoke against it"),
        }
        for one in defended.freed
        if one.provider == provider
    ]
    return {"defence": {**told, "verdicts": verdicts, "settlements": settlements}}


def objection(report: Report, ruling: Ruling) -> str:
    """How to object to a verdict, in one sentence; being cleared is nothing to object to."""
    if ruling.what == "cleared":
        return ""
    whom = report.consumer or "the consumer"
    whom += f", who buys in the market {report.market}," if report.market else ""
    when = "the close" if ruling.round is None else f"round {ruling.round}"
    run = f"run {report.run}, " if report.run else ""
    return (
        f"To object, write to {whom} quoting {run}{when}, and entry {ruling.entry} of the ledger with the hash "
        f"{ruling.hash}; `bazaar audit` shows whether the verdict follows from the figure, but the figure itself is "
        "the arbiter's word: ask for it to be measured again from the answers that you gave."
    )


def _verdict(one: Ruling, like: str | None = None) -> dict[str, Any]:
    return {
        "round": one.round,
        "verdict": one.title,
        "rule": one.what,
        "figure": one.figure,
        "limit": one.limit,
        "answers": one.answers,
        "why": one.sentence(like),
        "released": one.released,
        "returned": one.returned,
        "entry": one.entry,
        "hash": one.hash,
    }


def _evidence(one: Ruling, curve: Curve) -> dict[str, Any]:
    """The provider's own figures up to the verdict, answer by answer."""
    names = {"leak": ("leak",), "alike": ()}.get(one.what, ("signal", "error"))
    until = len(curve) if one.round is None else int((curve.rounds <= one.round).sum())
    figures = {name: without_nan(getattr(curve, name)[:until].tolist()) for name in names}
    return {"evidence": {"rounds": curve.rounds[:until].tolist(), **figures}} if figures else {}


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table with a line of heads. Numbers are written as they are, text so that it stays text."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text_cell(value) for value in row] for row in rows)
    return written.getvalue()


def _text_cell(value: object) -> object:
    """Quotes text that a spreadsheet would take for a formula, and removes what a terminal obeys."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if not isinstance(value, str):
        return value
    text = value.encode("utf-8", "replace").decode("utf-8")
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # csv would leave a lone \r unquoted, and begin a new row
    risky = text.lstrip()[:1] in {"=", "+", "-", "@"} or text[:1] in {"\t", "\n"}
    return "\t".join(map(shown_lines, (f"'{text}" if risky else text).split("\t")))
