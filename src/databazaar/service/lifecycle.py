"""The lifecycles of jobs and contracts: which state may follow which, and the only functions that change a state."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.service import outbox
from databazaar.service.database.tables import Contract, Job, JobEvent, now
from databazaar.service.errors import ConflictError, MissingError

LONGEST_DETAIL = 1000
NO_JOB = "there is no such job: look at the list of your jobs"


class JobState(StrEnum):
    DRAFT = "draft"
    SUBMITTED = "submitted"
    AGREED = "agreed"
    FUNDED = "funded"
    QUEUED = "queued"
    RUNNING = "running"
    SETTLING = "settling"
    SETTLED = "settled"
    REFUNDED = "refunded"
    FAILED = "failed"


class ContractState(StrEnum):
    REQUESTED = "requested"
    AGREED = "agreed"
    REFUSED = "refused"
    EXPIRED = "expired"
    ACTIVE = "active"
    ENDED = "ended"


_J, _C = JobState, ContractState

NEXT_OF_JOB: dict[JobState, frozenset[JobState]] = {
    _J.DRAFT: frozenset({_J.SUBMITTED, _J.REFUNDED}),
    _J.SUBMITTED: frozenset({_J.AGREED, _J.REFUNDED, _J.FAILED}),
    _J.AGREED: frozenset({_J.FUNDED, _J.REFUNDED}),
    _J.FUNDED: frozenset({_J.QUEUED, _J.RUNNING, _J.SETTLING}),
    _J.QUEUED: frozenset({_J.RUNNING, _J.SETTLING}),
    _J.RUNNING: frozenset({_J.QUEUED, _J.SETTLING}),
    _J.SETTLING: frozenset({_J.SETTLED, _J.REFUNDED, _J.FAILED}),
    _J.SETTLED: frozenset(),
    _J.REFUNDED: frozenset(),
    _J.FAILED: frozenset(),
}
"""`refunded` is a job that paid nobody, with or without money in it. `failed` is one that nobody agreed to, or whose
runs kept failing: what was posted is paid, and the rest is refunded. A job goes back from running to queued when its
runner was lost."""

NEXT_OF_CONTRACT: dict[ContractState, frozenset[ContractState]] = {
    _C.REQUESTED: frozenset({_C.AGREED, _C.REFUSED, _C.EXPIRED, _C.ENDED}),
    _C.AGREED: frozenset({_C.ACTIVE, _C.ENDED}),
    _C.ACTIVE: frozenset({_C.ENDED}),
    _C.REFUSED: frozenset(),
    _C.EXPIRED: frozenset(),
    _C.ENDED: frozenset(),
}
"""A contract ends with its job: unused where the job was withdrawn before it ran."""

OVER = frozenset({_J.SETTLED, _J.REFUNDED, _J.FAILED})
"""The states of a job that has no money locked."""


def locked_job(session: Session, job_id: str) -> Job:
    """The job, as it is now and held until the transaction ends. Lock it before its contracts."""
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise MissingError(NO_JOB)
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
    last = session.scalar(select(func.max(JobEvent.number)).where(JobEvent.job_id == job.id)) or 0
    event = JobEvent(job_id=job.id, number=last + 1, state=job.state, detail=str(why)[:LONGEST_DETAIL], code=code)
    session.add(event)
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
