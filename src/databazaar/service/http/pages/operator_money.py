"""The operator's pages about money: the journal and its audit, and deposits and payouts to confirm."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from databazaar.reports.wording import count
from databazaar.service import cash, journal
from databazaar.service.errors import InvalidError
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.operator import names_of
from databazaar.service.http.pages.visits import Posted, Visit, Visiting

router = APIRouter(include_in_schema=False, prefix="/operator")
A_PAGE = 50


@router.get("/journal")
def journal_page(visit: Visiting, before: int | None = None) -> Response:
    with visit.read() as session:
        pages = journal.entries(session, visit.caller, before=before, most=A_PAGE)
    entries = [
        {
            "seq": page.entry.seq,
            "kind": page.entry.kind,
            "at": page.entry.at,
            "hash": page.entry.hash,
            "postings": sorted(page.postings.items(), key=lambda one: one[1]),
        }
        for page in pages
    ]
    older = pages[-1].entry.seq if pages and pages[-1].entry.seq > 0 else None
    newer = None if before is None else before + A_PAGE
    return visit.render("operator/journal", "Journal", entries=entries, older=older, newer=newer)


@router.post("/journal/audit")
def audit_journal(visit: Visiting, _: Posted) -> Response:
    visit.caller.require_operator()
    with visit.read() as session:
        found = journal.audit(session)
    if not found.ok:
        return visit.see("/operator/journal", f"The books do not hold: {found.message}", kind="bad")
    entries = count(found.entries, "entry", "entries")
    return visit.see("/operator/journal", f"The books hold: {entries} are chained and sum to zero. Head {found.head}.")


@router.get("/journal/export")
def export_journal(visit: Visiting) -> Response:
    visit.caller.require_operator()

    def lines() -> Iterator[str]:
        with visit.read() as session:
            yield from journal.lines(session, visit.caller)

    headers = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


@router.get("/cash")
def cash_page(visit: Visiting) -> Response:
    return _cash(visit, Form())


def _cash(visit: Visit, form: Form, status: int = 200) -> Response:
    visit.caller.require_operator()
    with visit.read() as session:
        waiting = cash.records(session, visit.caller, state="requested")
        decided = [one for one in cash.records(session, visit.caller) if one.state != "requested"]
        names = names_of(session, visit.caller)
    return visit.render(
        "operator/cash", "Deposits and payouts", status, form=form, open=waiting, decided=decided, names=names
    )


@router.post("/cash/{record_id}/confirm")
def confirm(visit: Visiting, posted: Posted, record_id: str) -> Response:
    form = Form(posted)
    with form.trying(), visit.begin() as session:
        record = cash.confirm(session, visit.caller, record_id, form.text("reference").strip())
    if form.faulty:
        return _cash(visit, form, 409)
    return visit.see("/operator/cash", f"Confirmed: {visit.currency.format(record.amount)}.")


@router.post("/cash/{record_id}/refuse")
def refuse(visit: Visiting, posted: Posted, record_id: str) -> Response:
    form = Form(posted)
    with form.trying(), visit.begin() as session:
        reason = form.text("reason").strip()
        if not reason:
            raise InvalidError("whoever asked wants to know why: write it beside the button")
        cash.refuse(session, visit.caller, record_id, reason)
    if form.faulty:
        return _cash(visit, form, 409)
    return visit.see("/operator/cash", "Refused; whoever asked reads why.", kind="info")
