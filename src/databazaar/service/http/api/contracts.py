"""Contracts: requests that a provider decides, what both parties have agreed, what a provider has earned."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.client import shapes
from databazaar.service import contracts
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Page, Reason, paged
from databazaar.service.states import ContractState

router = APIRouter(prefix="/v1", tags=["contracts"])


class Decision(Asked):
    agree: bool
    reason: Reason = ""


@router.get("/contracts", response_model=Page[shapes.Contract])
def own_contracts(
    call: Asking, job_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[shapes.Contract]:
    """The contracts that the caller has made, as a consumer or as a provider."""
    with call.read() as session:
        found = contracts.own_contracts(session, call.caller, job_id)
        return paged(shapes.Contract, found, after, limit)


@router.get("/contracts/requests", response_model=Page[shapes.Contract])
def contract_requests(
    call: Asking, state: ContractState | None = ContractState.REQUESTED, after: After = None, limit: Limit = 100
) -> Page[shapes.Contract]:
    """What a provider was asked for, by state: without one, what it is to decide."""
    with call.read() as session:
        found = contracts.requests(session, call.caller, state)
        return paged(shapes.Contract, found, after, limit)


@router.get("/contracts/{contract_id}", response_model=shapes.Contract)
def contract(contract_id: str, call: Asking) -> shapes.Contract:
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


@router.post("/contracts/{contract_id}/decide", response_model=shapes.Decided)
def decide_contract(contract_id: str, asked: Decision, call: Doing) -> Response:
    """The provider's yes or no."""
    return call.do(
        shapes.Decided, lambda session: contracts.decide(session, call.caller, contract_id, asked.agree, asked.reason)
    )


@router.get("/earnings", response_model=Page[shapes.Contract])
def earnings(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Contract]:
    """What a provider's contracts came to: accesses, pay and ε of those that have ended."""
    with call.read() as session:
        found = contracts.earnings(session, call.caller)
        return paged(shapes.Contract, found, after, limit)
