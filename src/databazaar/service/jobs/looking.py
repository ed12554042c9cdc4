"""Looking at jobs: a consumer at its own, the operator at all."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import Job, JobEvent
from databazaar.service.errors import MissingError
from databazaar.service.lives import locked_job

CONSUMER, OPERATOR = "consumer", "operator"
"""Who has stopped a job."""
_MISSING = "there is no such job: look at the list of your jobs"


def own_job(session: Session, caller: Caller, job_id: str) -> Job:
    """A job of the caller's organisation; the operator sees any."""
    caller.require("read")
    job = session.get(Job, job_id)
    if job is None or not (job.organisation_id == caller.organisation_id or caller.sees_all):
        raise MissingError(_MISSING)
    return job


def refuse_others(session: Session, caller: Caller, job_id: str) -> None:
    """Whether the caller may look at a job, without the job: it is asked often."""
    caller.require("read")
    whose = session.scalar(select(Job.organisation_id).where(Job.id == job_id))
    if whose is None or not (whose == caller.organisation_id or caller.sees_all):
        raise MissingError(_MISSING)


def job_to_change(session: Session, caller: Caller, job_id: str) -> Job:
    """A job that the caller may change: its own alone."""
    caller.require_consumer()
    job = session.get(Job, job_id)
    if job is None or job.organisation_id != caller.organisation_id:
        raise MissingError(_MISSING)
    return job


def held_job(session: Session, caller: Caller, job_id: str) -> Job:
    """One that the caller is about to change, held until the transaction ends."""
    return locked_job(session, job_to_change(session, caller, job_id).id)


def job_to_stop(session: Session, caller: Caller, job_id: str) -> tuple[Job, str]:
    """One that the caller is about to stop, held until the transaction ends; and as whom: its consumer stops its own,
    the operator any."""
    if not caller.sees_all:
        return held_job(session, caller, job_id), CONSUMER
    job = locked_job(session, job_id)
    return job, CONSUMER if caller.consumes and job.organisation_id == caller.organisation_id else OPERATOR


def own_jobs(session: Session, caller: Caller) -> list[Job]:
    """The caller's, the newest first."""
    caller.require("read")
    own = select(Job).where(Job.organisation_id == caller.organisation_id)
    return list(session.scalars(own.order_by(Job.created_at.desc(), Job.id)))


def all_jobs(session: Session, caller: Caller) -> list[Job]:
    """Everybody's, the newest first, for the operator."""
    caller.require_operator()
    return list(session.scalars(select(Job).order_by(Job.created_at.desc(), Job.id)))


def events_of(session: Session, caller: Caller, job_id: str, after: int = 0) -> list[JobEvent]:
    """What has happened to a job, in order, from the event after number `after` on."""
    job = own_job(session, caller, job_id)
    query = select(JobEvent).where(JobEvent.job_id == job.id, JobEvent.number > after)
    return list(session.scalars(query.order_by(JobEvent.number)))
