"""What a provider decides, and what asks it now."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sqlalchemy import select

from databazaar.service import contracts, offers
from databazaar.service.database.tables import Job
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Posted, Visiting
from databazaar.service.states import ContractState

router = APIRouter(include_in_schema=False)


@router.get("/requests")
def requests_page(visit: Visiting) -> Response:
    visit.caller.require_provider()
    with visit.read() as session:
        every = contracts.requests(session, visit.caller, None)
        has_offers = bool(offers.own_offers(session, visit.caller))
    waiting = [one for one in every if one.state == ContractState.REQUESTED]
    decided = [one for one in reversed(every) if one.state != ContractState.REQUESTED]
    return visit.render("provider/requests", "Requests", open=waiting, decided=decided, has_offers=has_offers)


@router.post("/requests/{contract_id}")
def decide(visit: Visiting, posted: Posted, contract_id: str) -> Response:
    form = Form(posted)
    agree = form.choice("answer", ("refuse", "agree")) == "agree"
    with visit.refusals() as refused, visit.begin() as session:
        contracts.decide(session, visit.caller, contract_id, agree, form.text("reason"))
    if refused:
        return visit.see("/requests", refused[0], kind="bad")
    if agree:
        return visit.see("/requests", "Agreed: you are asked once the consumer has paid into escrow.")
    return visit.see("/requests", "Refused: the consumer reads why.", kind="info")


@router.get("/queue")
def queue(visit: Visiting) -> Response:
    """Jobs whose contract is active: they ask now, or as soon as they run."""
    visit.caller.require_provider()
    with visit.read() as session:
        active = contracts.requests(session, visit.caller, ContractState.ACTIVE)
        rows = select(Job.id, Job.state, Job.changed_at).where(Job.id.in_([one.job_id for one in active]))
        jobs = {job_id: (state, at) for job_id, state, at in session.execute(rows).all()}
    lines = [{"contract": one, "state": jobs[one.job_id][0], "since": jobs[one.job_id][1]} for one in active]
    return visit.render("provider/queue", "Your queue", lines=lines)
