"""Ending a job before its budget is spent: withdrawn before it is funded, stopped after."""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.files import write_whole
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Job
from databazaar.service.errors import ConflictError
from databazaar.service.jobs.looking import CONSUMER, OPERATOR, held_job, job_to_stop
from databazaar.service.lives import enter, noted
from databazaar.service.settings import Settings
from databazaar.service.states import JobState

__all__ = ["CONSUMER", "OPERATOR", "STOP", "stop", "withdraw"]
STOP = "stop"
"""The file in a job's folder that tells its runner to end after the round under way."""


def stop(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Ends a job early, for its consumer or the operator; what is not spent comes back. One that runs ends after the
    round under way, or in it where that takes too long, and one that does not is settled at once. That of an own
    arbiter the notary ends, who knows whether an answer is being passed on. To ask twice does nothing more."""
    job, party = job_to_stop(session, caller, job_id)
    asked = Code.of("asked-to-stop", party=party)
    if job.state not in (JobState.FUNDED, JobState.QUEUED, JobState.RUNNING):
        raise ConflictError(f"the job is {job.state}: only one that is funded and not over can be stopped")
    if job.state == JobState.RUNNING or job.mode == "own":
        if not job.stopped_by:
            job.stopped_by = party
            noted(session, job, asked)
        if job.mode == "hosted":
            write_whole(settings.job_folder(job.id) / STOP, b"", mode=0o600)
        return job
    job.stopped_by = party
    enter(session, job, JobState.SETTLING, asked)
    return job


def withdraw(session: Session, caller: Caller, job_id: str) -> Job:
    """Gives up a job that is not funded yet. Its contracts end unused."""
    job = held_job(session, caller, job_id)
    if job.state not in (JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED):
        raise ConflictError(f"the job is {job.state}, and only one that is not funded can be withdrawn: stop it")
    enter(session, job, JobState.REFUNDED, Code("withdrawn"))
    return job
