"""Money: deposits and payouts, which the operator confirms, for the hub holds none; statements, the journal, receipts
and the hub's key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.reports.words import count
from databazaar.service import cash, jobs, journal
from databazaar.service import receipts as signing
from databazaar.service.database.tables import CashRecord
from databazaar.service.http.context import Call, InWeb
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.operator import names_of
from databazaar.service.http.routes import Limit, Page, Routes

routes = Routes("money")
MOST_ROWS = 200
SORTS = ("cash", "escrow", "earned")
Before = Annotated[int | None, Query(ge=0, description="The `next` of the page before.")]
LINES, A_PAGE = 500, 50


class FormerKey(BaseModel):
    """A key that another one took the place of; `signature` is its own, for the next."""

    key: str
    next: str
    until: str
    signature: str


class PublicKey(BaseModel):
    """64 hexadecimal digits, to verify receipts with; a receipt names the one that signed it. Keep it: with it and your
    receipts you prove what was paid."""

    key: str
    former: list[FormerKey] = Field(description="Those that were used before, the oldest first.")


@routes.page("/money", "money", "Money", menu=("Your organisation", 2), listed_for="member")
def money_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        **sums_of(session, page),
        "sources": _sources(page),
        "records": cash.records(session, page.caller)[:MOST_ROWS],
        "entries": _by_entry(journal.statement(session, page.caller, most=MOST_ROWS)),
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


@routes.page("/operator/cash", "operator/cash", "Deposits and payouts", role="operator", menu=("Operating", 6))
def cash_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        "open": cash.records(session, page.caller, state="requested"),
        "decided": [one for one in cash.records(session, page.caller) if one.state != "requested"][:MOST_ROWS],
        "names": names_of(session, page.caller),
    }


routes.listing("/cash", shapes.Cash)(cash.records)
routes.listing("/balances", shapes.Account, "name")(journal.accounts_of)


def _deposit(page: PageContext, form: Form) -> dict[str, Any]:
    """A form on a job's page names the job, to which it leads back: one's own."""
    if job_id := form.text("job"):
        with page.read() as session:
            form.back = f"/jobs/{jobs.own_job(session, page.caller, job_id).id}"
    return {"amount": form.needed_amount("amount", page.currency)}


def _recorded(done: str, asked: str) -> Callable[[PageContext, CashRecord], str | tuple[str, str]]:
    """What is said of a record: `done`, or that it was `asked` for and the operator has yet to confirm it."""

    def told(page: PageContext, made: CashRecord) -> str | tuple[str, str]:
        words = page.currency.format(made.amount)
        return done.format(words) if made.state == "done" else (asked.format(words), "info")

    return told


DEPOSITED = _recorded(
    "{} is in your cash.", "The deposit of {} is announced: transfer it, and the operator confirms it."
)
PAID_OUT = _recorded("{} is paid out.", "You have asked for {}: the operator sends it and confirms.")


@routes.form("/money/deposits", DEPOSITED, page=money_page, name="deposit", read=_deposit)
@routes.write("/deposits", shapes.Cash, 201)
def deposit(call: Call, session: Session, *, amount: int) -> CashRecord:
    """Announces a deposit; it is there once the operator, or the adapter, has confirmed it."""
    return cash.request(session, call.caller, call.settings, "deposit", amount)


def _payout(page: PageContext, form: Form) -> dict[str, Any]:
    source = form.choice("source", [one for one, _ in _sources(page)])
    asked = form.needed_amount("paid_out", page.currency)
    with page.read() as session:
        left = cash.available(session, page.caller.slug, "payout" if source == "earned" else "withdraw")
    if asked > left:
        form.blame("paid_out", f"{page.currency.format(left)} can be paid out: ask for that or less")
    return {"source": source, "amount": asked}


@routes.form("/money/payouts", PAID_OUT, page=money_page, name="payout", read=_payout)
@routes.write("/payouts", shapes.Cash, 201)
def payout(call: Call, session: Session, *, amount: int, source: Literal["earned", "cash"] = "earned") -> CashRecord:
    """Asks for pay to be sent out that was earned, or for cash back that is not spent."""
    return cash.request(session, call.caller, call.settings, "payout" if source == "earned" else "withdraw", amount)


routes.write("/cash/{record_id}/confirm", shapes.Cash)(cash.confirm)
routes.form(
    "/operator/cash/{record_id}/confirm",
    lambda page, made: f"Confirmed: {page.currency.format(made.amount)}.",
    page=cash_page,
    read=lambda page, form: {"reference": form.text("reference").strip()},
    fields={},
)(cash.confirm)


def _refusal(page: PageContext, form: Form) -> dict[str, Any]:
    if not form.text("reason").strip():
        form.fault = "The organisation that asked wants to know why: write it beside the button."
    return {"reason": form.text("reason").strip()}


routes.write("/cash/{record_id}/refuse", shapes.Cash)(cash.refuse)
routes.form(
    "/operator/cash/{record_id}/refuse",
    "Refused; the organisation that asked reads why.",
    page=cash_page,
    read=_refusal,
    fields={},
    kind="info",
)(cash.refuse)


@routes.page("/operator/journal", "operator/journal", "Journal", role="operator", menu=("Operating", 5))
def journal_page(page: PageContext, session: Session, before: int | None = None) -> dict[str, Any]:
    entries = journal.entries(session, page.caller, before=before, most=A_PAGE)
    return {
        "entries": entries,
        "older": entries[-1].seq if entries and entries[-1].seq > 0 else None,
        "newer": None if before is None else before + A_PAGE,
    }


@routes.read("/statement", Page[shapes.Movement])
def statement(call: Call, session: Session, before: Before = None, limit: Limit = 100) -> Page[shapes.Movement]:
    """What happened on one's own accounts, the newest first; the next page is `before` the `next` of this one."""
    found = journal.statement(session, call.caller, before=before, most=limit)
    whole = [one for one in found if len(found) < limit or one.seq > found[-1].seq] or found
    return Page[shapes.Movement](items=whole, next=str(whole[-1].seq) if len(found) == limit else None)


@routes.read("/journal", Page[shapes.OperatorEntry])
def journal_entries(
    call: Call, session: Session, before: Before = None, limit: Limit = 100
) -> Page[shapes.OperatorEntry]:
    """The whole journal, the newest first. For the operator."""
    items = journal.entries(session, call.caller, before=before, most=limit)
    return Page[shapes.OperatorEntry](items=items, next=str(items[-1].seq) if len(items) == limit else None)


def _audited(page: PageContext, made: shapes.Audit) -> str | tuple[str, str]:
    if not made.ok:
        return f"The books do not hold: {made.message}", "bad"
    return f"The books hold: {count(made.entries, 'entry', 'entries')} are chained and sum to zero. Head {made.head}."


@routes.form("/operator/journal/audit", _audited, page=journal_page)
@routes.read("/journal/audit", shapes.Audit)
def audit_journal(call: Call, session: Session) -> shapes.Audit:
    """Replays the whole journal. For the operator."""
    call.caller.require_operator()
    return journal.audit(session)


@routes.read("/journal/export", responses={200: {"content": {"application/x-ndjson": {}}}})
def export_journal(call: Call, session: Session) -> StreamingResponse:
    """The journal as lines of JSON: whole for the operator; for others the chain alone, without what entries say."""
    call.caller.require("read")

    def lines() -> Iterator[str]:
        with call.read() as opened:
            every = iter(journal.lines(opened, call.caller))
            while batch := list(islice(every, LINES)):
                yield "".join(batch)

    named = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=named)


routes.listing("/receipts", shapes.Receipt)(signing.receipts_of)


@routes.api.get("/key", response_model=PublicKey)
def public_key(web: InWeb) -> PublicKey:
    """The hub's public key, and those that it had before. Anybody may ask for them."""
    return PublicKey.model_validate(signing.published(web.settings))
