"""Contracts: requests that a provider decides, what both parties have agreed, what a provider has earned."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter, Response

from databazaar.service import contracts
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Page, Reason, Shown, paged
from databazaar.service.states import ContractState

router = APIRouter(prefix="/v1", tags=["contracts"])


class ContractShown(Shown):
    """A contract as its two parties see it. `accesses`, `paid` and `epsilon` are there once the job is settled."""

    id: str
    state: str
    reason: str
    job_id: str
    job_name: str
    model: str
    consumer: str
    consumer_name: str
    provider: str
    provider_name: str
    offer_id: str
    offer: str
    offer_name: str
    version: int
    digest: str | None
    price: int
    terms: dict[str, Any]
    accesses: int | None
    paid: int | None
    epsilon: float | None
    requested_at: dt.datetime
    expires_at: dt.datetime
    decided_at: dt.datetime | None
    ended_at: dt.datetime | None


class Decided(Shown):
    id: str
    job_id: str
    state: str
    reason: str
    decided_at: dt.datetime | None


class Decision(Asked):
    agree: bool
    reason: Reason = ""


@router.get("/contracts", response_model=Page[ContractShown])
def own_contracts(
    call: Asking, job_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[ContractShown]:
    """The contracts that the caller has made, as a consumer or as a provider."""
    with call.read() as session:
        found = contracts.own_contracts(session, call.caller, job_id)
        return paged(found, after, limit, ContractShown.model_validate, lambda row: row.id)


@router.get("/contracts/requests", response_model=Page[ContractShown])
def contract_requests(
    call: Asking, state: ContractState | None = ContractState.REQUESTED, after: After = None, limit: Limit = 100
) -> Page[ContractShown]:
    """What a provider was asked for, by state: without one, what it is to decide."""
    with call.read() as session:
        found = contracts.requests(session, call.caller, state)
        return paged(found, after, limit, ContractShown.model_validate, lambda row: row.id)


@router.get("/contracts/{contract_id}", response_model=ContractShown)
def contract(contract_id: str, call: Asking) -> ContractShown:
    """One contract of the caller's."""
    with call.read() as session:
        return ContractShown.model_validate(contracts.own_contract(session, call.caller, contract_id))


@router.post("/contracts/{contract_id}/decide", response_model=Decided)
def decide_contract(contract_id: str, asked: Decision, call: Doing) -> Response:
    """The provider's yes or no."""
    return call.do(
        lambda session: Decided.model_validate(
            contracts.decide(session, call.caller, contract_id, asked.agree, asked.reason)
        )
    )


@router.get("/earnings", response_model=Page[ContractShown])
def earnings(call: Asking, after: After = None, limit: Limit = 100) -> Page[ContractShown]:
    """What a provider's contracts came to: accesses, pay and ε of those that have ended."""
    with call.read() as session:
        found = contracts.earnings(session, call.caller)
        return paged(found, after, limit, ContractShown.model_validate, lambda row: row.id)
