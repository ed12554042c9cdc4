"""Deciding: a provider's people say yes or no, or let the time pass."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.contracts.asking import conclude
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.lives import enter_contract, locked_job
from databazaar.service.states import ContractState
from databazaar.service.wording import prose

LONGEST_REASON = 500


def decide(session: Session, caller: Caller, contract_id: str, agree: bool, reason: str = "") -> Contract:
    """The provider's yes or no. Of two people who decide at once the first has decided."""
    caller.require_provider()
    reason = prose(reason, "reason", LONGEST_REASON)
    found = session.get(Contract, contract_id)
    if found is None or found.provider_id != caller.organisation_id:
        raise MissingError("there is no such contract: look at the list of your contracts")
    job = locked_job(session, found.job_id)
    contract = _locked(session, contract_id)
    if contract.state != ContractState.REQUESTED:
        raise ConflictError(f"this contract is {contract.state} already: nothing is left to decide")
    if contract.expires_at <= now():
        raise ConflictError("the time to decide this contract is over: the consumer may ask anew")
    state = ContractState.AGREED if agree else ContractState.REFUSED
    enter_contract(session, contract, state, reason or ("" if agree else "the provider said no"))
    conclude(session, job)
    return contract


def expire_due(session: Session) -> int:
    """Ends requests that nobody has decided in time; how many there were."""
    due = select(Contract.id, Contract.job_id).where(
        Contract.state == ContractState.REQUESTED, Contract.expires_at <= now()
    )
    expired = 0
    for contract_id, job_id in session.execute(due.order_by(Contract.job_id, Contract.id)).all():
        job = locked_job(session, job_id)
        contract = _locked(session, contract_id)
        if contract.state == ContractState.REQUESTED:
            enter_contract(session, contract, ContractState.EXPIRED, "the provider did not decide in time")
            conclude(session, job)
            expired += 1
    return expired


def _locked(session: Session, contract_id: str) -> Contract:
    query = select(Contract).where(Contract.id == contract_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()
