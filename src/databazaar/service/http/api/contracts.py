"""Contracts: requests that a provider decides, what both parties have agreed, what a provider has earned."""

from __future__ import annotations

import datetime as dt

from fastapi import APIRouter, Response

from databazaar.service import contracts
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Page, Reason, Shown, paged
from databazaar.service.states import ContractState

router = APIRouter(prefix="/v1", tags=["contracts"])


class Decided(Shown):
    id: str
    job_id: str
    state: str
    reason: str
    decided_at: dt.datetime | None


class Decision(Asked):
    agree: bool
    reason: Reason = ""


@router.get("/contracts", response_model=Page[contracts.ContractView])
def own_contracts(
    call: Asking, job_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[contracts.ContractView]:
    """The contracts that the caller has made, as a consumer or as a provider."""
    with call.read() as session:
        found = contracts.own_contracts(session, call.caller, job_id)
        return paged(found, after, limit, lambda view: view, lambda row: row.id)


@router.get("/contracts/requests", response_model=Page[contracts.ContractView])
def contract_requests(
    call: Asking, state: ContractState | None = ContractState.REQUESTED, after: After = None, limit: Limit = 100
) -> Page[contracts.ContractView]:
    """What a provider was asked for, by state: without one, what it is to decide."""
    with call.read() as session:
        found = contracts.requests(session, call.caller, state)
        return paged(found, after, limit, lambda view: view, lambda row: row.id)


@router.get("/contracts/{contract_id}", response_model=contracts.ContractView)
def contract(contract_id: str, call: Asking) -> contracts.ContractView:
    """One contract of the caller's."""
    with call.read() as session:
        return contracts.own_contract(session, call.caller, contract_id)


@router.get("/contracts/{contract_id}/schema.json", responses={200: {"content": {"application/json": {}}}})
def contract_schema(contract_id: str, call: Asking) -> Response:
    """The schema by which a site will be asked, for `bazaar provider schema kit --accept schema.json`. It holds means
    and scales of the consumer's hold-out, as every ask of a site does."""
    with call.read() as session:
        schema = contracts.schema_of(session, call.caller, call.settings, contract_id)
    named = f'attachment; filename="schema-{contract_id}.json"'
    return Response(schema, media_type="application/json", headers={"Content-Disposition": named})


@router.post("/contracts/{contract_id}/decide", response_model=Decided)
def decide_contract(contract_id: str, asked: Decision, call: Doing) -> Response:
    """The provider's yes or no."""
    return call.do(
        lambda session: Decided.model_validate(
            contracts.decide(session, call.caller, contract_id, asked.agree, asked.reason)
        )
    )


@router.get("/earnings", response_model=Page[contracts.ContractView])
def earnings(call: Asking, after: After = None, limit: Limit = 100) -> Page[contracts.ContractView]:
    """What a provider's contracts came to: accesses, pay and ε of those that have ended."""
    with call.read() as session:
        found = contracts.earnings(session, call.caller)
        return paged(found, after, limit, lambda view: view, lambda row: row.id)
