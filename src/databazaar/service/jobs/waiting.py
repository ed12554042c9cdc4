"""How long a job that is queued now would wait, by what is before it and how long jobs have taken."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from databazaar.service.database.tables import Job, JobEvent
from databazaar.service.settings import Settings
from databazaar.service.states import JobState

RECENT = 20


def expected_wait(session: Session, settings: Settings) -> float | None:
    """Seconds: zero where a runner is free, None where jobs wait and none has ever ended."""
    busy = select(func.count()).where(Job.mode == "hosted", Job.state.in_((JobState.QUEUED, JobState.RUNNING)))
    before, runners = session.scalar(busy) or 0, max(1, settings.runners)  # who has none shows another hub's queue
    if before < runners:
        return 0.0
    begun, ended = aliased(JobEvent), aliased(JobEvent)
    pairs = (
        select(func.min(begun.at), func.max(ended.at))
        .join(ended, (ended.job_id == begun.job_id) & (ended.state == JobState.SETTLING))
        .where(begun.state == JobState.RUNNING)
        .group_by(begun.job_id)
        .order_by(func.max(ended.at).desc())
        .limit(RECENT)
    )
    taken = [(end - start).total_seconds() for start, end in session.execute(pairs)]
    if not taken:
        return None
    return sum(taken) / len(taken) * (before - runners + 1) / runners
