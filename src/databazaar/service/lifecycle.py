"""The only ways in which a job or a contract changes its state. Both tell their parties."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.service import outbox
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, Job, JobEvent
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.states import NEXT_OF_CONTRACT, NEXT_OF_JOB, OVER, ContractState, JobState

LONGEST_DETAIL = 1000


def locked_job(session: Session, job_id: str) -> Job:
    """The job, as it is now and held until the transaction ends. Lock it before its contracts."""
    query = select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
    job = session.scalar(query)
    if job is None:
        raise MissingError("there is no such job: look at the list of your jobs")
    return job


def contracts_of(session: Session, job: Job, lock: bool = False) -> list[Contract]:
    """In the order in which their offers were chosen."""
    query = select(Contract).where(Contract.job_id == job.id).order_by(Contract.id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    place = {offer: number for number, offer in enumerate(job.offers)}
    return sorted(session.scalars(query), key=lambda contract: place.get(contract.offer_id, len(place)))


def enter(session: Session, job: Job, state: JobState, why: Code | str = "") -> JobEvent:
    """Brings a job into a state that may follow. `why` is a code, or the reason that the job has already."""
    if state not in NEXT_OF_JOB[JobState(job.state)]:
        raise ConflictError(f"the job is {job.state} and cannot become {state} now: look at it again")
    code = why.name if isinstance(why, Code) else job.reason_code if why else ""
    job.state, job.changed_at = str(state), now()
    if why or state in OVER or state == JobState.RUNNING:  # what kept it from running is over
        job.reason, job.reason_code = str(why)[:LONGEST_DETAIL], code
    event = noted(session, job, why, code)
    if state in OVER:
        for contract in contracts_of(session, job, lock=True):
            if NEXT_OF_CONTRACT[ContractState(contract.state)]:
                enter_contract(session, contract, ContractState.ENDED)
    return event


def stays(session: Session, job: Job, why: Code) -> None:
    """Notes once why a job stays in its state."""
    if job.reason != (reason := str(why)[:LONGEST_DETAIL]):
        job.reason, job.reason_code = reason, why.name
        noted(session, job, why)


def noted(session: Session, job: Job, why: Code | str, code: str = "") -> JobEvent:
    """Writes down what has happened to a job, and tells its consumer."""
    code = why.name if isinstance(why, Code) else code
    session.flush()
    last = session.scalar(select(func.max(JobEvent.number)).where(JobEvent.job_id == job.id)) or 0
    event = JobEvent(job_id=job.id, number=last + 1, state=job.state, detail=str(why)[:LONGEST_DETAIL], code=code)
    session.add(event)
    session.flush()
    body = {"job": job.id, "name": job.name, "state": job.state, "detail": event.detail, "code": code}
    outbox.tell(session, job.organisation_id, "job", {**body, "number": event.number})
    return event


def enter_contract(session: Session, contract: Contract, state: ContractState, reason: str = "") -> None:
    """Brings a contract into another state, and tells both who have made it."""
    if state not in NEXT_OF_CONTRACT[ContractState(contract.state)]:
        raise ConflictError(f"the contract is {contract.state} and cannot become {state} now: look at it again")
    contract.state, moment = str(state), now()
    if reason:
        contract.reason = reason[:LONGEST_DETAIL]
    if state in (ContractState.AGREED, ContractState.REFUSED, ContractState.EXPIRED):
        contract.decided_at = moment
    if state == ContractState.ENDED:
        contract.ended_at = moment
    session.flush()
    tell_parties(session, contract)


def tell_parties(session: Session, contract: Contract) -> None:
    body = {
        "contract": contract.id,
        "job": contract.job_id,
        "offer": contract.offer_id,
        "state": contract.state,
        "reason": contract.reason,
    }
    for party in sorted({contract.consumer_id, contract.provider_id}):
        outbox.tell(session, party, "contract", body)
