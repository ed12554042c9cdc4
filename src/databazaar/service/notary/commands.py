"""What a consumer with its own arbiter does at the hub: open its run, report rounds, ask providers, end."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.shapes import OwnMarket, RunStatus
from databazaar.codes import Code
from databazaar.federation.frames import encode_bundle
from databazaar.ledger import Entry
from databazaar.ledger.ledger import differing
from databazaar.ledger.rulebook import BY_CONSUMER
from databazaar.ledger.terms import ABOUT
from databazaar.runs.folder import RunFolder
from databazaar.service import specification
from databazaar.service.caller import Caller, own_row
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, Organisation
from databazaar.service.errors import ConflictError, InvalidError, ServiceError
from databazaar.service.hub.folder import pinned_files
from databazaar.service.hub.sweeper import Repeated
from databazaar.service.jobs import CONSUMER
from databazaar.service.lifecycle import NO_JOB, JobState, enter, locked_job
from databazaar.service.notary.answerers import Answerer, Answerers, Pool, RoundDue
from databazaar.service.notary.run import NotarisedRun
from databazaar.service.settings import Settings
from databazaar.service.submission import UNOPENED, expected_terms


def about_job(session: Session, settings: Settings, job: Job) -> dict[str, Any]:
    """Of every contract, the version of the data that it pins and the bounds that it sets."""
    answered = {
        offer.slug: {
            "path": str(settings.file(file.digest, file.suffix)),
            "models": contract.terms["models"],
            "most_rows": contract.terms["most_rows"],
        }
        for contract, offer, file in pinned_files(session, job)
    }
    return {
        "run": job.id,
        "consumer": session.get_one(Organisation, job.organisation_id).slug,
        "market": specification.settings_of(job),
        "files": answered,
        "folder": str(settings.job_folder(job.id)),
        "federation": str(settings.federation or ""),
    }


MOST_RUNS = 256
"""Runs whose state is kept at hand; any other is read from its ledger again when it is needed."""
EVERY = 5.0
"""Seconds between two looks at runs that are to end."""
PLAYED = JobState.FUNDED, JobState.RUNNING
OPEN_FIRST = "the run is not open: send its opening entry first"
log = logging.getLogger(__name__)


class Notaries:
    """The notary of every job with an own arbiter, for all threads of the process; jobs do not wait for each other."""

    def __init__(
        self, settings: Settings, database: Database, most: int = MOST_RUNS, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._database, self._clock = settings, database, clock
        self._open_runs = Pool[NotarisedRun](most)
        self._ended: set[str] = set()
        self._sweeper = Repeated("notaries", EVERY, self.close_due)
        self._answerers = Answerers(max(1, settings.runners))

    def market(self, caller: Caller, job_id: str) -> OwnMarket:
        """The job's market, as the consumer's arbiter plays it, and the name by which providers know the consumer."""
        job = self._own(caller, job_id)
        if job.state in (JobState.DRAFT, JobState.SUBMITTED):
            raise ConflictError(f"the job is {job.state}: its market is there once its providers have agreed")
        about = self._about(job)
        return OwnMarket(market=about["market"], consumer=about["consumer"])

    def standing(self, caller: Caller, job_id: str) -> RunStatus:
        job = self._own(caller, job_id)
        if not self._begun(job):
            return RunStatus()
        if job.state not in PLAYED:  # the settlement needs the folder
            found = RunFolder(self._settings.run_folder(job_id)).replay(record=False)
            return RunStatus(entries=found.entries, head=found.head, round=found.rounds, closed=found.closed)
        with self._run(job) as run:
            return _standing(run)

    def take(self, caller: Caller, job_id: str, entries: Sequence[Entry]) -> RunStatus:
        """Takes the entries that the arbiter's ledger has written; they are kept for good before this returns."""
        job = self._going(caller, job_id)
        with self._run(job, begin=not self._begun(job)) as run:
            self._refuse_ended(job)
            if not run.audit.entries:
                _refuse_other_terms(entries, expected_terms(specification.market_of(job)))
            run.take(entries)
            standing, closing = _standing(run), run.audit.closing
        stopped = closing is not None and closing["stop"] == BY_CONSUMER.body()
        self._note(job, standing.closed, stopped_by=CONSUMER if stopped else "")
        return standing

    def ask(self, caller: Caller, job_id: str, names: Sequence[str], payload: bytes, timeout: float) -> bytes:
        """Asks providers of the job, and passes on what they answer, which is remembered first."""
        job = self._going(caller, job_id)
        question = hashlib.sha256(payload).hexdigest()
        if not self._begun(job):
            with self._answerer(job) as answerer:
                answers = answerer.ask(names, payload, timeout, RoundDue(no_update=OPEN_FIRST))
            return encode_bundle({"lost": answers.lost}, answers.replies)
        with self._run(job) as run:
            self._refuse_ended(job)
            known = run.replies.answers if run.replies.question == question else {}
            left = [name for name in dict.fromkeys(names) if name not in known]
            due = _round_due(run, names, question)
            if not left and not due.no_update:
                return encode_bundle({"lost": {}}, {name: known[name] for name in names})
            with self._answerer(job) as answerer:
                answers = answerer.ask(left, payload, timeout, due)
            if answers.kind == "update":
                valid = {name: reply for name, reply in answers.replies.items() if answers.codes[name] is None}
                run.pass_on(question, valid, {name: code for name, code in answers.codes.items() if code is not None})
                for name, spent in answers.privacy.items():
                    run.folder.note_privacy(name, *spent)
            again = {name: known[name] for name in names if name in known}
            return encode_bundle({"lost": answers.lost}, {**answers.replies, **again})

    def _answerer(self, job: Job) -> AbstractContextManager[Answerer]:
        return self._answerers.turn(job.id, job.organisation_id, lambda: self._about(job))

    def connected(self, caller: Caller, job_id: str) -> list[str]:
        """Which of the job's providers could be asked now."""
        job = self._going(caller, job_id)
        with self._answerer(job) as answerer:
            return answerer.connected()

    def close_due(self) -> list[str]:
        """Ends the runs of consumers who have stopped, have been silent for too long, or have never begun; their
        ids."""
        with self._database.read() as session:
            query = select(Job).where(Job.mode == "own", Job.state.in_(PLAYED))
            going = list(session.scalars(query))
        for over in set(self._open_runs) - {job.id for job in going}:  # settled from elsewhere: nobody holds its folder
            self._drop(over)
        return [job.id for job in going if self._due(job) and self._end(job)]

    def _due(self, job: Job) -> bool:
        if job.stopped_by:
            return True
        if job.state == JobState.FUNDED and not self._settings.run_folder(job.id).exists():
            return self._clock() - job.changed_at.timestamp() > self._settings.own_begin
        return job.state == JobState.RUNNING and self._clock() - self._last_heard(job.id) > self._settings.own_lease

    def _last_heard(self, job_id: str) -> float:
        """When the job's files were last written, which survives a restart; missing files count as just written."""
        run, folder = self._settings.run_folder(job_id), self._settings.job_folder(job_id)
        places = (run / "ledger.sqlite", run / "ledger.sqlite-wal", folder / "replies.bin")
        return max((place.stat().st_mtime for place in places if place.exists()), default=math.inf)

    def _begun(self, job: Job) -> bool:
        """Whether the run is open at the hub. One that was open, and is not here any more, is not begun anew."""
        if self._settings.run_folder(job.id).exists():
            return True
        if job.state == JobState.RUNNING:
            log.error("the run of job %s is missing: mount or restore the hub's folder", job.id)
            raise ConflictError("the hub cannot read this run at present: tell its operator, and go on when it can")
        return False

    def _refuse_ended(self, job: Job) -> None:
        """For a caller that waited for the run while it ended, or opened it just then: nothing more is passed on."""
        if job.id in self._ended:
            raise ConflictError("the job was stopped: the hub has settled it")

    def _end(self, job: Job) -> bool:
        self._ended.add(job.id)  # before the look for its folder, which others make before they look here
        if self._settings.run_folder(job.id).exists():
            with self._run(job) as run:
                run.close()
        late = UNOPENED if job.state == JobState.FUNDED else Code("arbiter-silent")
        self._note(job, True, late, job.stopped_by)
        return True

    def _note(self, job: Job, over: bool, why: Code | str = "", stopped_by: str = "") -> None:
        """Brings the job's state to where its ledger is."""
        if job.state == JobState.RUNNING and not over:
            return
        if over:
            self._drop(job.id)
        with self._database.begin() as session:
            now = locked_job(session, job.id)
            if now.state == JobState.FUNDED and (not over or self._settings.run_folder(job.id).exists()):
                enter(session, now, JobState.RUNNING)
            now.stopped_by = now.stopped_by or stopped_by
            if over and now.state in PLAYED:
                stopped = Code.of("stopped", party=now.stopped_by)
                enter(session, now, JobState.SETTLING, stopped if stopped_by else why)

    def _own(self, caller: Caller, job_id: str) -> Job:
        caller.require("read")
        with self._database.read() as session:
            job = own_row(session, caller, Job, job_id, NO_JOB)
        caller.require_consumer()
        if job.mode != "own":
            raise ConflictError('the hub runs this job: only a job of mode "own" has an arbiter elsewhere')
        return job

    def _going(self, caller: Caller, job_id: str) -> Job:
        job = self._own(caller, job_id)
        if job.stopped_by and job.state in PLAYED:
            self._end(job)
            raise ConflictError("the job was stopped: the hub has settled it")
        if job.state not in PLAYED:
            raise ConflictError(
                f"the job is {job.state}: an arbiter plays one that is funded and not over, so fund it first"
            )
        return job

    def _about(self, job: Job) -> dict[str, Any]:
        with self._database.read() as session:
            return about_job(session, self._settings, job)

    def _run(self, job: Job, begin: bool = False) -> AbstractContextManager[NotarisedRun]:
        """The job's run, for one thread at a time."""
        path = self._settings.run_folder(job.id)
        return self._open_runs.of(
            job.id, lambda: NotarisedRun.begin(path, job.id, job.name) if begin else NotarisedRun(path)
        )

    def _drop(self, job_id: str) -> None:
        """Lets go of a run that is over, so that it can be settled."""
        self._open_runs.drop(job_id)
        self._answerers.drop(job_id)

    def start(self) -> None:
        """Looks every few seconds for runs that are to end."""
        self._sweeper.start()

    def close(self) -> None:
        self._sweeper.stop()
        self._open_runs.close()
        self._answerers.close()


def _standing(run: NotarisedRun) -> RunStatus:
    if not (entries := run.audit.entries):
        return RunStatus()
    due, audit = run.due, run.audit
    return RunStatus(entries=entries, head=audit.head, round=due.round, asked=due.asked, closed=audit.closed)


def _round_due(run: NotarisedRun, names: Sequence[str], question: str) -> RoundDue:
    """What can be asked now: a description always, and an update of the model that the ledger names last."""
    if not run.audit.entries:
        return RoundDue(no_update=OPEN_FIRST)
    round, model = run.due.round, run.audit.model or ""
    try:
        run.refuse_ask(names, question)
    except ServiceError as refused:
        return RoundDue(round, model, str(refused))
    return RoundDue(round, model)


def _refuse_other_terms(entries: Sequence[Entry], expected: dict[str, Any]) -> None:
    """Refuses an opening entry with other terms than the job's, but for what only the consumer's files tell."""
    unknown = {"initial_model", *(name for name in ABOUT if name not in expected)}
    try:
        body = entries[0].body
        others = differing(body, expected, but=unknown) if entries[0].opens else ["opening"]
    except (AttributeError, TypeError, ValueError, IndexError):
        others = ["rules"]
    if others:
        raise InvalidError(
            f"the opening entry has another {others[0]} than the job: open the run with the market that the hub gives"
        )
