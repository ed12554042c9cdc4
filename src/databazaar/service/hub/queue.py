"""The queue: whose job is next, and how long a new one would wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from databazaar.service.database.columns import now
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


def hosted(state: JobState) -> ColumnElement[bool]:
    """The jobs in a state whose runs are played here."""
    return and_(Job.state == state, Job.mode == "hosted")


def is_due() -> ColumnElement[bool]:
    """Those in the queue that may start now."""
    return and_(hosted(JobState.QUEUED), or_(Job.not_before.is_(None), Job.not_before <= now()))


def next_queued(session: Session, last_begun: Mapping[str, int]) -> Job | None:
    """The job to start next, locked: of the consumer with the fewest running, then of the one that waited longest, the
    oldest. `last_begun` numbers consumers by when a job of theirs was last started."""
    running = Counter(session.scalars(select(Job.organisation_id).where(hosted(JobState.RUNNING))))
    waiting = select(Job.id, Job.organisation_id).where(is_due()).order_by(Job.created_at, Job.id)
    first: dict[str, str] = {}
    for job_id, whose in session.execute(waiting):
        first.setdefault(whose, job_id)
    for whose in sorted(first, key=lambda one: (running[one], last_begun.get(one, -1))):
        held = select(Job).where(Job.id == first[whose], Job.state == JobState.QUEUED)
        job = session.scalar(held.with_for_update(skip_locked=True).execution_options(populate_existing=True))
        if job is not None:
            return job
    return None


def who_makes_room(session: Session, had_turn: Sequence[str]) -> str | None:
    """Of the running jobs that have had their turn, the first whose consumer runs more of them than one who waits."""
    owners = dict(session.execute(select(Job.id, Job.organisation_id).where(hosted(JobState.RUNNING))).all())
    running = Counter(owners.values())
    fewest = min(
        (running[whose] for whose in session.scalars(select(Job.organisation_id).where(is_due()))), default=None
    )
    if fewest is None:
        return None
    return next((job_id for job_id in had_turn if running[owners.get(job_id, "")] > fewest), None)
