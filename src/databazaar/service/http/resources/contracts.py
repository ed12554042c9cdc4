"""Contracts: requests that a provider decides, what both parties have agreed, what a provider has earned."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.service import contracts, journal, offers
from databazaar.service.database.tables import Contract, Job, Receipt
from databazaar.service.errors import MissingError
from databazaar.service.http.context import Call
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Reason, Routes
from databazaar.service.states import ContractState

routes = Routes("contracts")
DECIDED = {
    ContractState.AGREED: ("Agreed: you are asked once the consumer has paid into escrow.", "good"),
    ContractState.REFUSED: ("Refused: the consumer reads why.", "info"),
}


def attached(content: bytes | str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


@routes.page("/requests", "provider/requests", "Requests", role="provider", menu=("Selling", "Requests", 2))
def requests_page(page: PageContext, session: Session) -> dict[str, Any]:
    every = contracts.requests(session, page.caller, None)
    return {
        "open": [one for one in every if one.state == ContractState.REQUESTED],
        "decided": [one for one in reversed(every) if one.state != ContractState.REQUESTED],
        "has_offers": bool(offers.own_offers(session, page.caller)),
    }


@routes.page("/queue", "provider/queue", "Your queue", role="provider", menu=("Selling", "Queue", 3))
def queue_page(page: PageContext, session: Session) -> dict[str, Any]:
    """Jobs whose contract is active: they ask now, or as soon as they run."""
    active = contracts.requests(session, page.caller, ContractState.ACTIVE)
    jobs = {one.id: one for one in session.scalars(select(Job).where(Job.id.in_([one.job_id for one in active])))}
    return {"lines": [{"contract": one, "job": jobs[one.job_id]} for one in active]}


@routes.page("/earnings", "provider/earnings", "Earnings", role="provider", menu=("Selling", "Earnings", 4))
def earnings_page(page: PageContext, session: Session) -> dict[str, Any]:
    lines, budgets = contracts.earnings(session, page.caller), []
    for offer in offers.own_offers(session, page.caller):
        if (whole := offer.policy["epsilon"]) is not None:
            spent = sum(one.epsilon or 0.0 for one in lines if one.offer_id == offer.id)
            budgets.append({"name": offer.name, "spent": spent, "whole": whole, "left": max(0.0, whole - spent)})
    own = select(Receipt.contract_id, Receipt.id).where(Receipt.organisation_id == page.caller.organisation_id)
    return {
        "lines": lines,
        "receipts": dict(session.execute(own).all()),
        "total": sum(one.paid or 0 for one in lines),
        "accesses": sum(one.accesses or 0 for one in lines),
        "earned": journal.balance(session, journal.earned(page.caller.slug)),
        "budgets": budgets,
    }


@routes.page("/receipts/{receipt_id}", "", role="provider")
def receipt(page: PageContext, session: Session, receipt_id: str) -> Response:
    found = session.get(Receipt, receipt_id)
    if found is None or found.organisation_id != page.caller.organisation_id:
        raise MissingError("there is no such receipt: look at the list of your earnings")
    content = json.dumps({"body": found.body, "signature": found.signature}, indent=2, ensure_ascii=False)
    return attached(content, f"receipt-{found.id}.json")


@routes.listing("/contracts", shapes.Contract)
def own_contracts(call: Call, session: Session, job_id: str | None = None) -> list[shapes.Contract]:
    """The contracts that the caller has made, as a consumer or as a provider."""
    return contracts.own_contracts(session, call.caller, job_id)


@routes.listing("/contracts/requests", shapes.Contract)
def contract_requests(
    call: Call, session: Session, state: ContractState | None = ContractState.REQUESTED
) -> list[shapes.Contract]:
    """What a provider was asked for, by state: without one, what it is to decide."""
    return contracts.requests(session, call.caller, state)


@routes.read("/contracts/{contract_id}", shapes.Contract)
def contract(call: Call, session: Session, contract_id: str) -> shapes.Contract:
    """One contract of the caller's."""
    return contracts.own_contract(session, call.caller, contract_id)


@routes.read("/contracts/{contract_id}/schema.json", responses={200: {"content": {"application/json": {}}}})
def contract_schema(call: Call, session: Session, contract_id: str) -> Response:
    """The schema by which a site will be asked, for `bazaar provider schema kit --accept schema.json`. It holds means
    and scales of the consumer's hold-out, as every ask of a site does."""
    schema = contracts.schema_of(session, call.caller, call.settings, contract_id)
    return attached(schema, f"schema-{contract_id}.json")


@routes.form(
    "/requests/{contract_id}",
    "/requests",
    lambda page, made: DECIDED[made.state],
    read=lambda page, form: {
        "agree": form.choice("answer", ("refuse", "agree")) == "agree",
        "reason": form.text("reason"),
    },
)
@routes.write("/contracts/{contract_id}/decide", shapes.Decided)
def decide_contract(call: Call, session: Session, contract_id: str, *, agree: bool, reason: Reason = "") -> Contract:
    """The provider's yes or no."""
    return contracts.decide(session, call.caller, contract_id, agree, reason)


@routes.listing("/earnings", shapes.Contract)
def earnings(call: Call, session: Session) -> list[shapes.Contract]:
    """What a provider's contracts came to: accesses, pay and ε of those that have ended."""
    return contracts.earnings(session, call.caller)


@routes.listing("/queues", shapes.Queue, "offer_id")
def offer_queues(call: Call, session: Session) -> list[shapes.Queue]:
    """The queues of a provider's own offers; of all for the operator."""
    return contracts.queues(session, call.caller)
