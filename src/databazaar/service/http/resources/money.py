"""Money that comes in and goes out, and what an organisation has: records that the operator confirms. The hub holds no
money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import cash, jobs, journal
from databazaar.service.database.tables import CashRecord
from databazaar.service.errors import InvalidError
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.operator import names_of
from databazaar.service.http.routes import Amount, Reason, Routes

routes = Routes("money")
MOST, MOST_ROWS = 100_000, 200
KINDS = {"deposit": "Deposit", "payout": "Payout of pay", "withdraw": "Payout of cash"}
ENTRY_KINDS = {**KINDS, "fund": "A job was funded", "close": "A job was settled"}
SORTS = ("cash", "escrow", "earned")


class Balances(BaseModel):
    accounts: list[shapes.Account]


@routes.page(
    "/money",
    "money",
    "Money",
    forms=("deposit", "payout"),
    menu=("Your organisation", "Money", 2),
    listed_for="member",
)
def money_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        **sums_of(session, page),
        "sources": _sources(page),
        "records": cash.records(session, page.caller),
        "entries": _by_entry(journal.statement(session, page.caller, most=MOST_ROWS)),
        "KINDS": KINDS,
        "ENTRY_KINDS": ENTRY_KINDS,
    }


def sums_of(session: Session, call: Call) -> dict[str, int]:
    """What the caller's accounts hold, by their sort."""
    found = Counter(dict.fromkeys(SORTS, 0))
    for one in journal.accounts_of(session, call.caller):
        found[one.name.partition(":")[0]] += one.balance
    return {sort: found[sort] for sort in SORTS}


def _by_entry(movements: Sequence[shapes.Movement]) -> list[dict[str, Any]]:
    """One row for each entry of the journal, with what it changed by sort of account. The last one may not be whole,
    where there are more than fit."""
    found: dict[int, dict[str, Any]] = {}
    for one in movements:
        row = found.setdefault(one.seq, {"at": one.at, "kind": one.kind, "job_id": one.job_id, "moved": Counter()})
        row["moved"][one.account.partition(":")[0]] += one.amount
    rows = list(found.values())
    return rows[:-1] if len(movements) == MOST_ROWS else rows


def _sources(page: PageContext) -> list[tuple[str, str]]:
    earned = [("earned", "pay that you have earned")] if page.caller.provides else []
    return [*earned, ("cash", "cash at the market")]


@routes.page(
    "/operator/cash",
    "operator/cash",
    "Deposits and payouts",
    role="operator",
    forms=("form",),
    menu=("Operating", "Deposits and payouts", 6),
)
def cash_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        "open": cash.records(session, page.caller, state="requested"),
        "decided": [one for one in cash.records(session, page.caller) if one.state != "requested"],
        "names": names_of(session, page.caller),
    }


@routes.listing("/cash", shapes.Cash)
def cash_records(
    call: Call, session: Session, state: Literal["requested", "done", "refused"] | None = None
) -> Sequence[CashRecord]:
    """Deposits and payouts: one's own, or all for the operator."""
    return cash.records(session, call.caller, state=state, most=MOST)


@routes.read("/balances", Balances)
def balances(call: Call, session: Session) -> Balances:
    """One's own accounts; for the operator also the fees and the world outside."""
    return Balances(accounts=[from_row(shapes.Account, one) for one in journal.accounts_of(session, call.caller)])


def _deposit(page: PageContext, form: Form) -> dict[str, Any]:
    """A form on a job's page names the job, to which it leads back: one's own."""
    if job_id := form.text("job"):
        with page.read() as session:
            form.back = f"/jobs/{jobs.own_job(session, page.caller, job_id).id}"
    return {"amount": form.needed_amount("amount", page.currency)}


def _deposited(page: PageContext, made: CashRecord) -> str | tuple[str, str]:
    words = page.currency.format(made.amount)
    if made.state == "done":
        return f"{words} is in your cash."
    return f"The deposit of {words} is announced: transfer it, and the operator confirms it.", "info"


@routes.form("/money/deposits", "/money", _deposited, page=money_page, name="deposit", read=_deposit)
@routes.write("/deposits", shapes.Cash, 201)
def deposit(call: Call, session: Session, *, amount: Amount) -> CashRecord:
    """Says that money comes in; it is there once the operator, or the adapter, has confirmed it."""
    return cash.request_deposit(session, call.caller, call.settings, amount)


@routes.write("/payouts", shapes.Cash, 201)
def payout(call: Call, session: Session, *, amount: Amount) -> CashRecord:
    """Asks for pay to be sent out."""
    return cash.request_payout(session, call.caller, call.settings, amount)


@routes.write("/withdrawals", shapes.Cash, 201)
def withdraw_cash(call: Call, session: Session, *, amount: Amount) -> CashRecord:
    """Asks for cash back that is not spent."""
    return cash.request_withdrawal(session, call.caller, call.settings, amount)


def _payout(page: PageContext, form: Form) -> dict[str, Any]:
    source = form.choice("source", [one for one, _ in _sources(page)])
    return {"source": source, "amount": form.needed_amount("paid_out", page.currency), "currency": page.currency}


def _paid_out(page: PageContext, made: CashRecord) -> str | tuple[str, str]:
    words = page.currency.format(made.amount)
    if made.state == "done":
        return f"{words} is paid out."
    return f"You have asked for {words}: the operator sends it and confirms.", "info"


@routes.form("/money/payouts", "/money", _paid_out, page=money_page, name="payout", read=_payout)
def pay_out(call: Call, session: Session, **given: Any) -> CashRecord:
    """Either of the two, as the form says where the money comes from."""
    earned = given["source"] == "earned"
    left = cash.available(session, call.caller.slug, "payout" if earned else "withdraw")
    if given["amount"] > left:
        raise InvalidError(f"{given['currency'].format(left)} can be paid out: ask for that or less", place="paid_out")
    return (payout if earned else withdraw_cash)(call, session, amount=given["amount"])


@routes.form(
    "/operator/cash/{record_id}/confirm",
    "/operator/cash",
    lambda page, made: f"Confirmed: {page.currency.format(made.amount)}.",
    page=cash_page,
    read=lambda page, form: {"reference": form.text("reference").strip()},
    fields={},
    status=409,
)
@routes.write("/cash/{record_id}/confirm", shapes.Cash)
def confirm_cash(
    call: Call,
    session: Session,
    record_id: str,
    *,
    reference: Annotated[str, Field(max_length=200, description="The bank's name for the transfer, say.")] = "",
) -> CashRecord:
    """The money has moved, outside. For the operator."""
    return cash.confirm(session, call.caller, record_id, reference)


def _refusal(page: PageContext, form: Form) -> dict[str, Any]:
    if not form.text("reason").strip():
        form.fault = "The organisation that asked wants to know why: write it beside the button."
    return {"reason": form.text("reason").strip()}


@routes.form(
    "/operator/cash/{record_id}/refuse",
    "/operator/cash",
    "Refused; the organisation that asked reads why.",
    page=cash_page,
    read=_refusal,
    fields={},
    status=409,
    kind="info",
)
@routes.write("/cash/{record_id}/refuse", shapes.Cash)
def refuse_cash(call: Call, session: Session, record_id: str, *, reason: Reason) -> CashRecord:
    """The money has not moved and will not. For the operator."""
    return cash.refuse(session, call.caller, record_id, reason)
