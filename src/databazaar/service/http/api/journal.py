"""The journal: balances and statements of one's own, the whole for the operator, receipts and the hub's key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import journal
from databazaar.service import receipts as signing
from databazaar.service.http.api.calls import Asking
from databazaar.service.http.api.shapes import After, Limit, Page, paged
from databazaar.service.http.context import InWeb

router = APIRouter(prefix="/v1", tags=["journal"])
Before = Annotated[int | None, Query(ge=0, description="The `next` of the page before.")]
LINES = 500


class Balances(BaseModel):
    accounts: list[shapes.Account]


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


@router.get("/balances", response_model=Balances)
def balances(call: Asking) -> Balances:
    """One's own accounts; for the operator also the fees and the world outside."""
    with call.read() as session:
        found = journal.accounts_of(session, call.caller)
        return Balances(accounts=[from_row(shapes.Account, one) for one in found])


@router.get("/statement", response_model=Page[shapes.Movement])
def statement(call: Asking, before: Before = None, limit: Limit = 100) -> Page[shapes.Movement]:
    """What happened on one's own accounts, the newest first; the next page is `before` the `next` of this one."""
    with call.read() as session:
        found = journal.statement(session, call.caller, before=before, most=limit)
        whole = [one for one in found if len(found) < limit or one.seq > found[-1].seq] or found
        return Page[shapes.Movement](
            items=whole,
            next=str(whole[-1].seq) if len(found) == limit else None,
        )


@router.get("/journal", response_model=Page[shapes.Entry])
def journal_entries(call: Asking, before: Before = None, limit: Limit = 100) -> Page[shapes.Entry]:
    """The whole journal, the newest first. For the operator."""
    with call.read() as session:
        found = journal.entries(session, call.caller, before=before, most=limit)
        items = [from_row(shapes.Entry, page.entry, postings=page.postings) for page in found]
        return Page[shapes.Entry](items=items, next=str(items[-1].seq) if len(items) == limit else None)


@router.get("/journal/audit", response_model=shapes.Audit)
def audit_journal(call: Asking) -> shapes.Audit:
    """Replays the whole journal. For the operator."""
    call.caller.require_operator()
    with call.read() as session:
        return from_row(shapes.Audit, journal.audit(session))


@router.get("/journal/export", responses={200: {"content": {"application/x-ndjson": {}}}})
def export_journal(call: Asking) -> StreamingResponse:
    """The journal as lines of JSON: whole for the operator; for others the chain alone, without what entries say."""
    call.caller.require("read")

    def lines() -> Iterator[str]:
        with call.read() as session:
            batch: list[str] = []
            for line in journal.lines(session, call.caller):
                batch.append(line)
                if len(batch) == LINES:
                    yield "".join(batch)
                    batch.clear()
            yield "".join(batch)

    named = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=named)


@router.get("/receipts", response_model=Page[shapes.Receipt])
def receipts(
    call: Asking, contract_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[shapes.Receipt]:
    """The receipts that the hub has signed for the caller."""
    with call.read() as session:
        found = signing.receipts_of(session, call.caller, contract_id)
        return paged(shapes.Receipt, found, after, limit)


@router.get("/key", response_model=PublicKey)
def public_key(web: InWeb) -> PublicKey:
    """The hub's public key, and those that it had before. Anybody may ask for them."""
    return PublicKey.model_validate(signing.published(web.settings))
