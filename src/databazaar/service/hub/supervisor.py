"""The supervisor: takes jobs from the queue, gives each a process, follows it, and has it settled.

A process that failed is started again, later and later; one that comes no further is given up, and then what was
posted is paid and the rest refunded.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from multiprocessing.connection import wait

from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.errors import BazaarError
from databazaar.files import write_whole
from databazaar.runs.notes import SUMMARY
from databazaar.service import home
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, now
from databazaar.service.home import HubLock, HubLockedError
from databazaar.service.hub import progress, runner, settlement
from databazaar.service.hub.children import Child, Children
from databazaar.service.hub.folder import HELD, has_begun, without_places, write_market
from databazaar.service.hub.sweeper import sweepers
from databazaar.service.jobs import STOP
from databazaar.service.lifecycle import JobState, enter, locked_job, noted, stays
from databazaar.service.settings import Settings

TICK = 0.25
"""Seconds after which the queue is looked at again, if nothing has happened before."""
FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
"""Seconds until what failed is tried again: twice as many each time."""
HELD_FOR = 10.0
"""Seconds until a job that is held is looked at again."""
log = logging.getLogger(__name__)


def delay(failures: int) -> float:
    """
    >>> [delay(failures) for failures in (1, 2, 3, 100)]
    [1.0, 2.0, 4.0, 300.0]
    """
    return float(min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(failures - 1, 30)))


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


class Supervisor:
    """Runs and settles the jobs of one hub, from `start` to `stop`."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings, self.database = settings, database
        self._runners = Children("runner", settings, runner.run)
        self._settlers = Children("settler", settings, settlement.run)
        self._sweepers = sweepers(settings, database)
        self._alone: HubLock | None = None
        self._thread = threading.Thread(target=self._work, name="supervisor", daemon=True)
        self._stopping = threading.Event()
        self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._turns, self._turn_of = count(), dict[str, int]()
        self._unsettled: dict[str, tuple[int, float]] = {}
        self._stopped: dict[str, float] = {}

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begins to work in a thread, unless another hub works here or the home is not the database's."""
        self._alone = HubLock(self.settings, self.database)
        try:
            home.bind(self.settings, self.database)
        except BaseException:
            self._alone.release()
            raise
        self._thread.start()
        for sweeper in self._sweepers:
            sweeper.start()

    def wake(self) -> None:
        """Looks at the queue now and not a moment later."""
        with contextlib.suppress(BlockingIOError):  # it rings already
            os.write(self._bell[1], b".")

    def stop(self) -> None:
        """Ends all processes where they are, and puts their jobs back into the queue, for the next hub."""
        self._stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        for sweeper in self._sweepers:
            sweeper.stop()
        if self._alone is not None:
            self._alone.release()
            self._alone = None

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tick()
            except SQLAlchemyError as error:
                log.warning("the database does not answer, and is asked again: %s", type(error).__name__)
                self._stopping.wait(TICK)
            except HubLockedError as refused:
                log.error("this hub runs no more jobs: %s", refused)
                break
            except Exception:
                log.exception("the supervisor failed, and goes on")
            wait([self._bell[0], *self._runners.sentinels, *self._settlers.sentinels], timeout=TICK)
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell[0], 4096)
        self._settlers.kill()
        lost = self._runners.kill()
        with contextlib.suppress(SQLAlchemyError):  # the next hub finds them
            self._put_back(lost, Code("hub-stopped"))

    def _tick(self) -> None:
        assert self._alone is not None
        self._alone.still()
        for child in self._runners.over():
            self._note_end(child)
            self._runners.forget(child)
        for child in self._settlers.over():
            self._note_settled(child)
            self._settlers.forget(child)
        running, settling, waiting = self._look()
        self._end_stopped([job_id for job_id, stopped_by in running.items() if stopped_by])
        self._put_back([job_id for job_id in running if job_id not in self._runners], Code("runner-lost"))
        self._settle(settling)
        if waiting and len(self._runners) >= self.settings.runners:
            self._make_room()
        while waiting and len(self._runners) < self.settings.runners:
            waiting = self._begin_next()

    def _look(self) -> tuple[dict[str, str], list[str], bool]:
        """The jobs that run, and who has stopped them; those that are settling; and whether any is to begin."""
        with self.database.read() as session:
            ours = select(Job.id, Job.stopped_by).where(hosted(JobState.RUNNING))
            running = dict(session.execute(ours).all())
            over = select(Job.id).where(Job.state == JobState.SETTLING).order_by(Job.changed_at)
            settling = list(session.scalars(over))
            waiting = session.scalar(select(exists().where(is_due())))
        return running, settling, bool(waiting)

    def _end_stopped(self, jobs: list[str]) -> None:
        """Tells runners of stopped jobs to end after their round, and ends those that take longer than `stop_grace`."""
        moment = time.monotonic()
        self._stopped = {job_id: self._stopped.get(job_id, moment) for job_id in jobs}
        for job_id, since in self._stopped.items():
            stop = self.settings.job_folder(job_id) / STOP
            try:
                if not stop.exists():
                    write_whole(stop, b"", mode=0o600)
            except (BazaarError, OSError) as refused:
                log.error("job %s cannot be told to stop: %s", job_id, refused)
            if moment - since > self.settings.stop_grace and job_id in self._runners:
                why = Code.of("round-not-ended", seconds=self.settings.stop_grace)
                self._put_back(self._runners.kill(job_id), why)

    def _put_back(self, jobs: list[str], why: Code) -> None:
        """No attempt is counted: it was the hub that ended, not the job."""
        for job_id in jobs:
            with self.database.begin() as session:
                job = locked_job(session, job_id)
                if job.state == JobState.RUNNING:
                    enter(session, job, JobState.SETTLING if job.stopped_by else JobState.QUEUED, why)

    def _make_room(self) -> None:
        """Where a consumer waits and another has had its turn, the job of that one goes on later, from where its ledger
        stands. Each turn brings a round at the least, and a run that has ended is not taken away."""
        had_turn = [
            child.job_id
            for child in self._runners.older_than(self.settings.turn)
            if progress.played(self.settings, child.job_id) > child.rounds
            and not (self.settings.run_folder(child.job_id) / SUMMARY).exists()
        ]
        if not had_turn:
            return
        with self.database.read() as session:
            job_id = who_makes_room(session, had_turn)
        if job_id is not None:
            self._put_back(self._runners.kill(job_id), Code("turn-over"))

    def _begin_next(self) -> bool:
        """Starts the job whose turn it is; False where none waits."""
        with self.database.begin() as session:
            job = next_queued(session, self._turn_of)
            if job is None:
                return False
            self._turn_of[job.organisation_id] = next(self._turns)
            if not self._prepare(session, job):
                return True
            job.not_before = None
            enter(session, job, JobState.RUNNING)
        try:
            self._runners.start(job.id, progress.played(self.settings, job.id))
        except OSError as refused:
            log.error("no process can be started: %s", refused)
            with self.database.begin() as session:
                self._later(session, locked_job(session, job.id), "the hub could not start its runner", False)
        return True

    def _prepare(self, session: Session, job: Job) -> bool:
        """Writes what the runner needs, unless it has it. Where what is needed cannot be read or written, the job is
        held, however long that takes: it may have posts to pay, so it is not given up. False then."""
        try:
            if not has_begun(session, self.settings, job):
                write_market(session, self.settings, job)
            (self.settings.job_folder(job.id) / STOP).unlink(missing_ok=True)
            return True
        except (BazaarError, OSError) as why:
            log.error("job %s is held, and looked at again in %g seconds: %s", job.id, HELD_FOR, why)
            said = str(why)
            if isinstance(why, OSError):
                said = f"its files cannot be prepared ({why.strerror}): the operator's log says which"
        job.not_before = now() + dt.timedelta(seconds=HELD_FOR)
        stays(session, job, Code.of(HELD, why=without_places(self.settings, job.id, said)))
        return False

    def _note_end(self, child: Child) -> None:
        code = child.code
        with self.database.begin() as session:
            job = locked_job(session, child.job_id)
            if job.state != JobState.RUNNING:
                return
            if code == 0 or job.stopped_by:
                enter(session, job, JobState.SETTLING)
                return
            progressed = progress.played(self.settings, job.id) > child.rounds
            self._later(session, job, str(runner.why_failed(self.settings, job.id, code)), progressed)
            log.warning("the runner of job %s ended with %d: it is %s", job.id, code, job.state)

    def _later(self, session: Session, job: Job, why: str, progressed: bool) -> None:
        """Tries it again in a while, or gives it up after so many attempts that came no further."""
        job.attempts = 1 if progressed else job.attempts + 1
        if job.attempts >= self.settings.attempts:
            enter(session, job, JobState.SETTLING, Code.of("given-up", attempts=job.attempts, why=why))
            return
        job.not_before = now() + dt.timedelta(seconds=delay(job.attempts))
        said = Code.of("attempt-failed", attempt=job.attempts, why=why)
        if job.state == JobState.QUEUED:
            noted(session, job, said)
        else:
            enter(session, job, JobState.QUEUED, said)

    def _settle(self, settling: list[str]) -> None:
        for job_id in settling:
            if len(self._settlers) >= max(2, self.settings.runners):
                break
            due = time.monotonic() >= self._unsettled.get(job_id, (0, 0.0))[1]
            if due and job_id not in self._settlers:
                self._settlers.start(job_id)

    def _note_settled(self, child: Child) -> None:
        """What could not be settled is tried again for as long as it takes."""
        if child.code == 0:
            self._unsettled.pop(child.job_id, None)
            return
        failures = self._unsettled.get(child.job_id, (0, 0.0))[0] + 1
        self._unsettled[child.job_id] = failures, time.monotonic() + delay(failures)
        log.error("job %s could not be settled (%d times by now): see its log", child.job_id, failures)
