"""An organisation's money at the market: balances, its statement, deposits and payouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response

from databazaar.client.shapes import Movement
from databazaar.service import cash, jobs, journal
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Posted, Visit, Visiting

router = APIRouter(include_in_schema=False, prefix="/money")
KINDS = {"deposit": "Deposit", "payout": "Payout of pay", "withdraw": "Payout of cash"}
MOST_ROWS = 200
ENTRY_KINDS = {
    "deposit": "Deposit",
    "fund": "A job was funded",
    "close": "A job was settled",
    "payout": "Payout of pay",
    "withdraw": "Payout of cash",
}


@router.get("")
def money_page(visit: Visiting) -> Response:
    return _page(visit, Form(), Form())


def _page(visit: Visit, deposit: Form, payout: Form, status: int = 200) -> Response:
    caller = visit.caller
    with visit.read() as session:
        accounts = journal.accounts_of(session, caller)
        sums = {
            kind: sum(one.balance for one in accounts if one.name.startswith(f"{kind}:"))
            for kind in ("cash", "escrow", "earned")
        }
        return visit.render(
            "money",
            "Money",
            status,
            **sums,
            deposit=deposit,
            payout=payout,
            sources=_sources(visit),
            records=cash.records(session, caller),
            entries=_by_entry(journal.statement(session, caller, most=MOST_ROWS)),
            KINDS=KINDS,
            ENTRY_KINDS=ENTRY_KINDS,
        )


def _by_entry(movements: Sequence[Movement]) -> list[dict[str, Any]]:
    """One row for each entry of the journal, with what it changed by kind of account. The last one may not be whole,
    where there are more than fit."""
    found: dict[int, dict[str, Any]] = {}
    for one in movements:
        row = found.setdefault(one.seq, {"at": one.at, "kind": one.kind, "job_id": one.job_id, "moved": Counter()})
        row["moved"][one.account.partition(":")[0]] += one.amount
    rows = list(found.values())
    return rows[:-1] if len(movements) == MOST_ROWS else rows


def _sources(visit: Visit) -> list[tuple[str, str]]:
    earned = [("earned", "pay that you have earned")] if visit.caller.provides else []
    return [*earned, ("cash", "cash at the market")]


@router.post("/deposits")
def announce_deposit(visit: Visiting, posted: Posted) -> Response:
    """From the page of money, or from that of a job, to which it leads back."""
    form = Form(posted)
    amount, back = form.needed_amount("amount", visit.currency), "/money"
    if form.text("job"):
        with visit.read() as session:
            back = f"/jobs/{jobs.own_job(session, visit.caller, form.text('job')).id}"
    state = ""
    with form.trying(amount="amount"):
        if not form.faulty:
            with visit.begin() as session:
                state = cash.request_deposit(session, visit.caller, visit.settings, amount).state
    if form.faulty:
        return _page(visit, form, Form(), 422)
    words = visit.currency.format(amount)
    if state == "done":
        return visit.see(back, f"{words} is in your cash.")
    return visit.see(
        back, f"The deposit of {words} is announced: transfer it, and the operator confirms it.", kind="info"
    )


@router.post("/payouts")
def ask_for_payout(visit: Visiting, posted: Posted) -> Response:
    form = Form(posted)
    source = form.choice("source", [one for one, _ in _sources(visit)])
    amount = form.needed_amount("paid_out", visit.currency)
    state = ""
    ask = cash.request_payout if source == "earned" else cash.request_withdrawal
    with form.trying():
        if not form.faulty:
            with visit.begin() as session:
                left = cash.available(session, visit.caller.slug, "payout" if source == "earned" else "withdraw")
                if amount > left:
                    form.blame("paid_out", f"{visit.currency.format(left)} can be paid out: ask for that or less")
                else:
                    state = ask(session, visit.caller, visit.settings, amount).state
    if form.faulty:
        return _page(visit, Form(), form, 422)
    words = visit.currency.format(amount)
    if state == "done":
        return visit.see("/money", f"{words} is paid out.")
    return visit.see("/money", f"You have asked for {words}: the operator sends it and confirms.", kind="info")
