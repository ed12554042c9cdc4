"""What a provider has earned, what its data have told, and the receipts for it."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import select

from databazaar.client import shapes
from databazaar.service import contracts, journal, offers
from databazaar.service.database.tables import Receipt
from databazaar.service.errors import MissingError
from databazaar.service.http.pages.visits import Visiting

router = APIRouter(include_in_schema=False)


@router.get("/earnings")
def earnings_page(visit: Visiting) -> Response:
    visit.caller.require_provider()
    with visit.read() as session:
        lines = contracts.earnings(session, visit.caller)
        own = select(Receipt.contract_id, Receipt.id).where(Receipt.organisation_id == visit.caller.organisation_id)
        receipts = dict(session.execute(own).all())
        earned = journal.balance(session, journal.earned(visit.caller.slug))
        bounded = [one for one in offers.own_offers(session, visit.caller) if one.policy["epsilon"] is not None]
    return visit.render(
        "provider/earnings",
        "Earnings",
        lines=lines,
        receipts=receipts,
        total=sum(one.paid or 0 for one in lines),
        accesses=sum(one.accesses or 0 for one in lines),
        earned=earned,
        budgets=[_budget(offer, lines) for offer in bounded],
    )


def _budget(offer: Any, lines: list[shapes.Contract]) -> dict[str, Any]:
    spent = sum(one.epsilon or 0.0 for one in lines if one.offer_id == offer.id)
    whole = offer.policy["epsilon"]
    return {"name": offer.name, "spent": spent, "whole": whole, "left": max(0.0, whole - spent)}


@router.get("/receipts/{receipt_id}")
def receipt(visit: Visiting, receipt_id: str) -> Response:
    visit.caller.require_provider()
    with visit.read() as session:
        found = session.get(Receipt, receipt_id)
    if found is None or found.organisation_id != visit.caller.organisation_id:
        raise MissingError("there is no such receipt: look at the list of your earnings")
    content = json.dumps({"body": found.body, "signature": found.signature}, indent=2, ensure_ascii=False)
    headers = {"Content-Disposition": f'attachment; filename="receipt-{found.id}.json"'}
    return Response(content, media_type="application/json", headers=headers)
