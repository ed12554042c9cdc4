"""The revenue statement, for programs (a dict), and for spreadsheets (CSV)."""

from __future__ import annotations

from typing import Any

from databazaar.reports.spreadsheet import csv_text
from databazaar.runs.report import Report


def statement_dict(report: Report) -> dict[str, Any]:
    """The settlement as plain data. Amounts are integers in minor units; `…_text` is for people.

    Where `closed` is false the run is not finished, and nothing in it is final.
    """
    write = report.currency.format
    return {
        "currency": report.currency.name,
        "decimals": report.currency.decimals,
        "budget": report.budget,
        "budget_text": write(report.budget),
        "spent": report.spent,
        "spent_text": write(report.spent),
        "refunded": report.refunded,
        "refunded_text": write(report.refunded),
        "held": report.held,
        "held_text": write(report.held),
        "rounds": len(report.rounds),
        "status": report.status,
        "closed": report.closed,
        "model_hash": report.model_hash,
        "ledger_head": report.ledger_head,
        "providers": [
            {
                "provider": payout.provider,
                "owner": payout.owner,
                "price": payout.price,
                "price_text": write(payout.price),
                "accesses": payout.accesses,
                "failures": payout.failures,
                "pay": payout.pay,
                "pay_text": write(payout.pay),
                **({} if payout.epsilon is None else {"epsilon": payout.epsilon}),
            }
            for payout in report.payouts
        ],
        "owners": owner_totals(report),
    }


def owner_totals(report: Report) -> list[dict[str, Any]]:
    """What each owner earned with all of its providers, in the order in which owners first appear."""
    totals: dict[str, dict[str, Any]] = {}
    for payout in report.payouts:
        total = totals.setdefault(
            payout.owner,
            {"owner": payout.owner, "providers": 0, "accesses": 0, "failures": 0, "pay": 0},
        )
        total["providers"] += 1
        total["accesses"] += payout.accesses
        total["failures"] += payout.failures
        total["pay"] += payout.pay
    return [{**total, "pay_text": report.currency.format(total["pay"])} for total in totals.values()]


def statement_csv(report: Report) -> str:
    """One line a provider; the column `pay` sums to what was spent."""
    columns = ["provider", "owner", "price", "accesses", "failures", "pay", "pay_text"]
    return csv_text(columns, [[line[column] for column in columns] for line in statement_dict(report)["providers"]])


def owners_csv(report: Report) -> str:
    """One line an owner; the column `pay` sums to what was spent."""
    columns = ["owner", "providers", "accesses", "failures", "pay", "pay_text"]
    return csv_text(columns, [[line[column] for column in columns] for line in owner_totals(report)])
