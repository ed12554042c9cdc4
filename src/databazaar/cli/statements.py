"""Revenue statements on the command line: for everybody, or for one provider access by access."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.files import write_whole
from databazaar.reports.defence_figures import own_evidence
from databazaar.reports.figures import save_png
from databazaar.reports.statement import (
    csv_text,
    heading,
    in_currency,
    own_defence,
    row_table,
    statement_csv,
    statement_dict,
    table_csv,
)
from databazaar.row_values import RowSums
from databazaar.runs.payouts import MOST_NAMED
from databazaar.runs.report import Report

LONGEST_NAME = 80
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
"""What Windows keeps for itself, whatever the ending."""
UNFINISHED = "this run is not finished: nothing in this statement is final"


def everyone(report: Report, as_json: bool, as_csv: bool) -> str:
    """The statement for all; in a large market the best paid have a line each."""
    if as_json:
        return json.dumps(statement_dict(report)) + "\n"
    if as_csv:
        return statement_csv(report)
    lines, money = report.lines, report.currency.format
    places, others = lines.listed(MOST_NAMED)
    told = [(shown(lines.ids[place]), int(lines.accesses[place]), int(lines.pay[place])) for place in places]
    if others is not None:
        told.append((others.title, others.accesses, others.pay))
    width = max(len(name) for name, _, _ in told)
    who = f"{report.market}, bought by {report.consumer}" if report.consumer else report.market
    run = [f"run {report.run}"] if report.run else []
    run += [f"{name} {date}" for name in ("began", "settled") if (date := getattr(report, name))]
    written = [line for line in (who, ", ".join(run)) if line]
    written += [f"{name:<{width}}  {accesses:>8} accesses  {money(pay):>16}" for name, accesses, pay in told]
    if others is not None:
        written.append("--csv has everybody")
    if report.defended is not None:
        written += [line for line in (report.defended.summary, report.defended.blind) if line]
    rest = f"refunded {money(report.refunded)}" if report.closed else f"held {money(report.held)}"
    written.append(f"budget {money(report.budget)}, spent {money(report.spent)}, {rest}")
    if not report.closed:
        written.append(UNFINISHED)
    return "".join(f"{shown(line, None)}\n" for line in written)


def one(report: Report, provider: str, as_csv: bool) -> str:
    statement = provider_dict(report, provider)
    return _csv(report, statement) if as_csv else json.dumps(statement) + "\n"


def provider_dict(report: Report, provider: str) -> dict[str, Any]:
    """One provider's own statement, which is final once `closed`. It says why the provider was asked as often as it
    was, in words, and nothing of other providers, gains or the utility."""
    place = place_of(report, provider)
    payout, columns = report.payouts[place], report.columns
    rounds = [columns[number] for number in np.unique(columns.when[columns.providers == place]).tolist()]
    items = [
        {
            "round": round.number,
            "draw": a.draw,
            "paid": a.paid,
            "paid_amount": report.currency.amount(a.paid),
            **({} if report.defended is None else {"held": a.held, "held_amount": report.currency.amount(a.held)}),
            "failure": "" if a.failure is None else a.failure.name,
            "failure_text": "" if a.failure is None else str(a.failure),
        }
        for round in rounds
        for a in round.accesses
        if a.provider == place
    ]
    return {
        "provider": payout.provider,
        "owner": payout.owner,
        **heading(report),
        "price": payout.price,
        "accesses": payout.accesses,
        "failures": payout.failures,
        **in_currency(report, "pay", payout.pay),
        **({} if payout.epsilon is None else {"epsilon": payout.epsilon}),
        "why": report.brought[place].why.sentence,
        **own_defence(report, provider),
        "status": report.status,
        "closed": report.closed,
        "ledger_head": report.ledger_head,
        "items": items,
    }


def of_rows(report: Report, sums: Mapping[int, NDArray[np.float64]] | None, provider: str, as_json: bool) -> str:
    """What each row of one provider has brought, the first row being number 1."""
    place = place_of(report, provider)
    if sums is None:
        raise BazaarError(
            "this run has no values of rows: they are there once a run with market.values_rows = true is finished"
        )
    columns, lines = row_table(RowSums(sums.get(place, np.zeros((0, 3)))))
    if not as_json:
        return csv_text(columns, lines)
    rows = [dict(zip(columns, line, strict=True)) for line in lines]
    return json.dumps({"provider": provider, **heading(report), "rows": rows}) + "\n"


def place_of(report: Report, provider: str) -> int:
    if provider not in report.lines.places:
        raise BazaarError(f"--provider {provider} is not part of this run: it has {listed(report.lines.ids, 10)}")
    return report.lines.places[provider]


def write_all(report: Report, out: Path) -> str:
    """Writes the statements for everybody and for each provider, and figures of the evidence against those flagged."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise BazaarError(f"{out} is not empty: give another folder with --out")
    write_whole(out / "statement.csv", statement_csv(report).encode())
    write_whole(out / "statement.json", json.dumps(statement_dict(report), indent=2).encode())
    for provider, name in zip(report.lines.ids, file_names(report.lines.ids), strict=True):
        statement = provider_dict(report, provider)
        write_whole(out / f"{name}.csv", _csv(report, statement).encode())
        write_whole(out / f"{name}.json", json.dumps(statement, indent=2).encode())
        against = () if report.defended is None else report.defended.of(provider)
        if any(ruling.flags or ruling.what == "in-doubt" for ruling in against):
            figure = own_evidence(report, provider)
            save_png({name: figure} if figure is not None else {}, out)
    return f"{sum(1 for _ in out.iterdir())} files in {out}"


def file_names(providers: Sequence[str]) -> list[str]:
    """A file's name for each, that every system takes; no two are the same in small letters.

    >>> file_names(["../north", "North", "north", "CON"])
    ['_north', 'North', 'north-2', '_CON']
    """
    taken, names = {"statement"}, []
    for provider in providers:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", provider[:LONGEST_NAME]).strip(".") or "provider"
        plain = f"_{plain}" if plain.split(".")[0].casefold() in RESERVED else plain
        choices = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        names.append(next(name for name in choices if name.casefold() not in taken))
        taken.add(names[-1].casefold())
    return names


def _csv(report: Report, statement: dict[str, Any]) -> str:
    """One line an access; with a defence, also one for each settlement of held-back pay: `paid` sums to the pay."""
    held = ["held", "held_amount", "what"] if "defence" in statement else []
    columns = ["round", "draw", "paid", "paid_amount", *held, "failure", "failure_text", "why"]
    lines = [{**item, "what": "access", "why": statement["why"]} for item in statement["items"]]
    amount = report.currency.amount
    for one in statement["defence"]["settlements"] if held else ():
        paid = one["amount"] if one["released"] else 0
        settled = {
            "round": "" if one["round"] is None else one["round"],
            "what": "release" if one["released"] else "return",
            "paid": paid,
            "paid_amount": amount(paid),
            "held": -one["amount"],
            "held_amount": amount(-one["amount"]),
            "why": one["why"],
        }
        lines.append({**dict.fromkeys(columns, ""), **settled})
    return table_csv(report, columns, lines)
