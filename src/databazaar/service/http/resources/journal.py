"""The journal: statements of one's own, the whole for the operator, receipts and the hub's key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.reports.words import count
from databazaar.service import journal
from databazaar.service import receipts as signing
from databazaar.service.database.tables import Receipt
from databazaar.service.http.context import Call, InWeb
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Limit, Page, Routes

routes = Routes("journal")
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


@routes.page("/operator/journal", "operator/journal", "Journal", role="operator", menu=("Operating", "Journal", 5))
def journal_page(page: PageContext, session: Session, before: int | None = None) -> dict[str, Any]:
    entries = _entries(session, page, before, A_PAGE)
    return {
        "entries": entries,
        "older": entries[-1].seq if entries and entries[-1].seq > 0 else None,
        "newer": None if before is None else before + A_PAGE,
    }


def _entries(session: Session, call: Call, before: int | None, most: int) -> list[shapes.OperatorEntry]:
    found = journal.entries(session, call.caller, before=before, most=most)
    return [from_row(shapes.OperatorEntry, one.entry, postings=one.postings) for one in found]


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
    items = _entries(session, call, before, limit)
    return Page[shapes.OperatorEntry](items=items, next=str(items[-1].seq) if len(items) == limit else None)


def _audited(page: PageContext, made: shapes.Audit) -> str | tuple[str, str]:
    if not made.ok:
        return f"The books do not hold: {made.message}", "bad"
    return f"The books hold: {count(made.entries, 'entry', 'entries')} are chained and sum to zero. Head {made.head}."


@routes.form("/operator/journal/audit", "/operator/journal", _audited, role="operator")
@routes.read("/journal/audit", shapes.Audit)
def audit_journal(call: Call, session: Session) -> shapes.Audit:
    """Replays the whole journal. For the operator."""
    call.caller.require_operator()
    return from_row(shapes.Audit, journal.audit(session))


@routes.read("/journal/export", responses={200: {"content": {"application/x-ndjson": {}}}})
def export_journal(call: Call, session: Session) -> StreamingResponse:
    """The journal as lines of JSON: whole for the operator; for others the chain alone, without what entries say."""
    call.caller.require("read")

    def lines() -> Iterator[str]:
        with call.read() as opened:
            batch: list[str] = []
            for line in journal.lines(opened, call.caller):
                batch.append(line)
                if len(batch) == LINES:
                    yield "".join(batch)
                    batch.clear()
            yield "".join(batch)

    named = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=named)


@routes.listing("/receipts", shapes.Receipt)
def receipts(call: Call, session: Session, contract_id: str | None = None) -> Sequence[Receipt]:
    """The receipts that the hub has signed for the caller."""
    return signing.receipts_of(session, call.caller, contract_id)


@routes.api.get("/key", response_model=PublicKey)
def public_key(web: InWeb) -> PublicKey:
    """The hub's public key, and those that it had before. Anybody may ask for them."""
    return PublicKey.model_validate(signing.published(web.settings))
