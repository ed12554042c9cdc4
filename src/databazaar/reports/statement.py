"""The revenue statement, for programs (a dict), and for spreadsheets (CSV)."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from databazaar.reports.defence_statement import defence_dict, standing_columns, standing_of
from databazaar.reports.spreadsheet import csv_text
from databazaar.runs.attribution import NUMBERS, Attribution
from databazaar.runs.payouts import MOST_STATED
from databazaar.runs.report import Report

ABOUT = ("market", "consumer", "run", "began", "settled")
"""What every statement says of the run that it is for. It is empty where nobody has said it."""


def stated(report: Report) -> list[int]:
    """The places of those who have a line of their own in a statement, the best paid first: all, or in a market of more
    than `MOST_STATED` providers those who were asked. Nobody else was paid."""
    return report.lines.best_paid(everybody=len(report.lines) <= MOST_STATED)


def heading(report: Report) -> dict[str, Any]:
    """Which run a statement is for, when that was, and what its amounts are in."""
    named = {name: getattr(report, name) for name in ABOUT}
    return {**named, "currency": report.currency.name, "decimals": report.currency.decimals}


def statement_dict(report: Report) -> dict[str, Any]:
    """The settlement as plain data, the best paid first, with what each provider brought: it is the consumer's own.

    Amounts are integers in minor units; `…_amount` is the same in the currency, and `…_text` has its name too.
    `never_asked` counts those who have no line.
    """
    write, plain = report.currency.format, report.currency.amount
    places = stated(report)
    left_out = len(report.lines) - len(places)
    return {
        **heading(report),
        "budget": report.budget,
        "budget_text": write(report.budget),
        "spent": report.spent,
        "spent_text": write(report.spent),
        "refunded": report.refunded,
        "refunded_text": write(report.refunded),
        "held": report.held,
        "held_text": write(report.held),
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
                "price": payout.price,
                "price_amount": plain(payout.price),
                "price_text": write(payout.price),
                "accesses": payout.accesses,
                "failures": payout.failures,
                "pay": payout.pay,
                "pay_amount": plain(payout.pay),
                "pay_text": write(payout.pay),
                **({} if payout.epsilon is None else {"epsilon": payout.epsilon}),
                **standing_of(report, payout.provider),
                **_brought(report.brought[place]),
            }
            for place, payout in ((place, report.payouts[place]) for place in places)
        ],
        **({"never_asked": left_out} if left_out else {}),
        "owners": owner_totals(report),
        **defence_dict(report),
    }


def _brought(one: Attribution) -> dict[str, Any]:
    """What the pay brought: amounts of gain are for one unit of the currency, shares are parts of 1."""
    told = {name: getattr(one, name) for name in NUMBERS}
    return {**told, "reason": one.why.kind, "why": one.why.sentence}


def owner_totals(report: Report) -> list[dict[str, Any]]:
    """What each owner earned with all of its providers, the best paid first; of very many, those who were asked."""
    lines, providers, totals = report.lines, Counter(report.lines.owners), dict[str, dict[str, Any]]()
    columns = {"accesses": lines.accesses, "failures": lines.failures, "pay": lines.pay}
    for place in sorted(stated(report)):
        owner = lines.owners[place]
        begin = {"owner": owner, "providers": providers[owner], **dict.fromkeys(columns, 0)}
        total = totals.setdefault(owner, begin)
        for name, column in columns.items():
            total[name] += int(column[place])
    money, text = report.currency.amount, report.currency.format
    ranked = sorted(totals.values(), key=lambda total: (-total["pay"], total["owner"]))
    return [{**total, "pay_amount": money(total["pay"]), "pay_text": text(total["pay"])} for total in ranked]


def statement_csv(report: Report) -> str:
    """One line a provider, or as `stated`; the column `pay` sums to what was spent, in minor units."""
    columns = ["provider", "owner", "accesses", "failures", "price", "price_amount", "pay", "pay_amount"]
    columns += [*standing_columns(report), *NUMBERS, "reason", "why"]
    return table_csv(report, columns, statement_dict(report)["providers"])


def table_csv(report: Report, columns: list[str], lines: list[dict[str, Any]]) -> str:
    """Some lines of a statement. Each also says which run it is of: a line may end up in another table."""
    about = heading(report)
    rows = [[_cell(column, line[column]) for column in columns] + list(about.values()) for line in lines]
    return csv_text([*columns, *about], rows)


def _cell(column: str, value: Any) -> Any:
    return Decimal(value) if column.endswith("_amount") else value
