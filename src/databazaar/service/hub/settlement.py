"""Settlement: a job's run is closed and audited, and then paid, refunded and signed for in one transaction.

A crash anywhere in it leaves the job settling, and it is done again until it is done; the journal's key `close:JOB` and
the job's state let it happen once. What is paid comes from the ledger, which is replayed here once more although its
runner has replayed it: never from a summary, or from what a runner says. An audit takes its time: each job is settled
in a process of its own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.errors import BazaarError, LedgerError
from databazaar.files import alone
from databazaar.learners import Averaging
from databazaar.ledger import Audit
from databazaar.ledger.rulebook import BY_CONSUMER, Stopped, end_of
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import PAGE
from databazaar.service import journal
from databazaar.service.caller import Caller
from databazaar.service.contracts import Needs
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Job, JournalEntry, Offer, Organisation
from databazaar.service.errors import ConflictError, ServiceError
from databazaar.service.hub.folder import LOCK, has_begun, without_places, write_page
from databazaar.service.hub.runner import OUR_FAULT, become_a_child
from databazaar.service.jobs import OPERATOR
from databazaar.service.lifecycle import ContractState, JobState, contracts_of, enter, locked_job, stays
from databazaar.service.members import currency_of, market
from databazaar.service.notary.run import close_notarised, is_notarised
from databazaar.service.receipts import HubKey, issue
from databazaar.service.settings import Settings
from databazaar.service.submission import UNOPENED

UNSOUND = "ledger-unsound"
GIVEN_UP = Code("runs-kept-failing")
BASIS_POINTS = 10_000
TASK_REFUSED = Code.of("refused", why="task-not-allowed")
"""The ledger's code for a site that answers by other schemas than the job's (federation/failures.py)."""


class UnsoundError(ServiceError):
    """The ledger of a run does not hold, or cannot be read: nothing is paid or refunded before the operator says so."""

    status = 500

    def __init__(self, why: str) -> None:
        self.code = Code.of(UNSOUND, why=why)
        super().__init__(str(self.code))


@dataclass(frozen=True)
class Outcome:
    """What a run came to. Without an audit it was never played. `epsilon` is what providers say they have spent, and
    `refusals` why nobody was paid, where nobody was."""

    audit: Audit | None = None
    epsilon: dict[str, float] = field(default_factory=dict)
    refusals: frozenset[Code | None] = frozenset()

    @property
    def pay(self) -> dict[str, int]:
        return {} if self.audit is None or self.audit.book is None else self.audit.book.pay

    @property
    def accesses(self) -> dict[str, int]:
        return {} if self.audit is None or self.audit.book is None else self.audit.book.accesses

    @property
    def by_itself(self) -> bool:
        """Whether it has ended by its own rules."""
        closing = None if self.audit is None else self.audit.closing
        return closing is not None and closing["stop"] != BY_CONSUMER.body()

    @property
    def end(self) -> Code | None:
        """How it ended, for people."""
        audit = self.audit
        if audit is None or audit.closing is None or audit.book is None or audit.terms is None:
            return None
        return end_of(Stopped.read(audit.closing["stop"]), audit.book, audit.terms.currency)


def settle(
    database: Database, settings: Settings, job_id: str, report: Callable[[RunFolder], None] | None = None
) -> JobState:
    """Brings a settling job to its end; the state that it is in then. Nobody else may work in its folder. An unsound
    ledger raises UnsoundError, and the job stays settling. `report` gets the run before anybody is paid."""
    with database.read() as session:
        job = session.get_one(Job, job_id)
        if job.state != JobState.SETTLING:
            return JobState(job.state)
    try:
        outcome = _outcome(database, settings, job, report)
        with database.begin() as session:
            return close(session, settings, locked_job(session, job_id), outcome)
    except UnsoundError as broken:
        with database.begin() as session:
            job = locked_job(session, job_id)
            if job.state == JobState.SETTLING:
                stays(session, job, broken.code)
        raise


def _outcome(database: Database, settings: Settings, job: Job, report: Callable[[RunFolder], None] | None) -> Outcome:
    """What the job's run came to: nothing only where it is known that it never began."""
    try:
        with database.read() as session:
            begun = has_begun(session, settings, job)
        if not begun:
            return Outcome()
        run = RunFolder(settings.run_folder(job.id))
        outcome = outcome_of(run, own=job.mode == "own")
    except (BazaarError, OSError) as broken:
        raise UnsoundError(without_places(settings, job.id, broken)) from None
    if report is not None and outcome.audit is not None:
        report(run)
    return outcome


def outcome_of(folder: RunFolder, own: bool = False) -> Outcome:
    """Closes an open run and audits it; a run without a round comes to nothing. Of a consumer's `own` run the hub has
    the ledger and no model."""
    own = own or is_notarised(folder)
    if not folder.finished:
        written = next(folder.entries(), None) is not None or folder.begun()  # damaged: an error, unlike `need_rules`
        found = folder.replay(record=False) if written else None
        if found is not None and found.ok and own and not found.closed:  # the hub ended before its notary had closed it
            close_notarised(folder.path)
            found = folder.replay(record=False)
        if found is None or (found.ok and not found.rounds):
            return Outcome()
        if found.ok and not own:
            close_run(folder)
    found = folder.replay(record=False) if own else folder.audit()
    if not found.ok or not found.closed:
        raise LedgerError(found.message)
    epsilon = {who: spent for who, (spent, _) in folder.privacy().items()}
    return Outcome(found, epsilon, _refusals(folder, found))


def _refusals(folder: RunFolder, found: Audit) -> frozenset[Code | None]:
    if found.book is None or any(found.book.pay.values()):
        return frozenset()
    record = folder.replay().record
    assert record is not None
    return frozenset(access.failure for round in record.rounds for access in round.accesses)


def close(session: Session, settings: Settings, job: Job, outcome: Outcome) -> JobState:
    """Writes down what a run came to: contracts, state, journal, receipts. The job is locked."""
    if job.state != JobState.SETTLING:
        return JobState(job.state)
    contracts = {session.get_one(Offer, c.offer_id).slug: c for c in contracts_of(session, job, lock=True)}
    _refuse_another_run(job, contracts, outcome)
    entry = _pay(session, job, contracts, outcome)
    key, name, currency = HubKey.of(settings), market(session).name, currency_of(session)
    for contract in contracts.values():
        if contract.accesses:
            issue(session, key, contract, entry, market=name, currency=currency, run_head=job.run_head or "")
    return JobState(job.state)


def _pay(
    session: Session,
    job: Job,
    contracts: Mapping[str, Contract],
    outcome: Outcome,
    end: tuple[JobState, Code] | None = None,
) -> JournalEntry:
    """Pays providers and fee from the escrow and refunds the rest; `end` is how the job ends where the run does not
    say it."""
    consumer = session.get_one(Organisation, job.organisation_id)
    pay: Counter[str] = Counter()
    for slug, contract in contracts.items():
        if contract.state == ContractState.ACTIVE:
            contract.accesses, contract.paid = outcome.accesses.get(slug, 0), outcome.pay.get(slug, 0)
            contract.epsilon = outcome.epsilon.get(slug)
            pay[journal.earned(session.get_one(Organisation, contract.provider_id).slug)] += contract.paid
    job.paid = pay.total()
    job.fee = -(-job.paid * job.fee_basis_points // BASIS_POINTS)
    job.refunded = job.escrow - job.paid - job.fee
    if outcome.audit is not None:
        job.run_head, job.model_hash = outcome.audit.head, outcome.audit.delivered
    enter(session, job, *(end or _end_of(job, outcome)))
    moved = {journal.escrow(job.id): -job.escrow, **pay, "fees": job.fee, journal.cash(consumer.slug): job.refunded}
    ran = {"run_head": job.run_head} if job.run_head else {}
    ran |= {"stopped_by": OPERATOR} if job.stopped_by == OPERATOR else {}
    return journal.post(session, "close", f"close:{job.id}", moved, job_id=job.id, body=ran)


def _refuse_another_run(job: Job, contracts: dict[str, Contract], outcome: Outcome) -> None:
    """A ledger that holds, but over other terms than the job's, pays nobody."""
    if outcome.audit is None or outcome.audit.terms is None:
        return
    terms = outcome.audit.terms
    active = {slug for slug, contract in contracts.items() if contract.state == ContractState.ACTIVE}
    if terms.budget != job.budget or not set(terms.roster.ids) <= active:
        raise UnsoundError("its budget or its providers are not those of the job")
    if terms.rules.get("learner", {}).get("kind", Averaging.kind) != Needs(**job.needs).learner:
        raise UnsoundError("its learner is not the one that the contracts name")


def _end_of(job: Job, outcome: Outcome) -> tuple[JobState, Code | str]:
    """A run that ended by its rules or its consumer's will is settled, or refunded where nobody was paid; else it
    failed."""
    over = JobState.SETTLED if job.paid else JobState.REFUNDED
    if outcome.by_itself and outcome.refusals == {TASK_REFUSED}:
        return over, Code.of("schema-not-accepted", schema=(Needs(**job.needs).fingerprint or "FINGERPRINT")[:12])
    if outcome.by_itself:
        return over, outcome.end or ""
    if job.stopped_by == OPERATOR:
        return over, Code("stopped-by-operator")
    if job.stopped_by:
        return over, outcome.end or Code("stopped-before-first-round")
    if job.reason_code == UNOPENED.name:
        return over, UNOPENED
    return JobState.FAILED, GIVEN_UP if job.reason_code == UNSOUND else job.reason


def refund_unsound(session: Session, caller: Caller, job_id: str) -> Job:
    """The operator's way out where a ledger is lost for good: all of the escrow goes back, and nobody is paid."""
    caller.require_operator()
    job = locked_job(session, job_id)
    if job.state != JobState.SETTLING or job.reason_code != UNSOUND:
        raise ConflictError("only a job that its ledger cannot settle is refunded by hand: others settle themselves")
    contracts = {contract.offer_id: contract for contract in contracts_of(session, job, lock=True)}
    _pay(session, job, contracts, Outcome(), (JobState.REFUNDED, Code("refunded-by-operator")))
    return job


BEHIND = 5
"""How nice a settler is: rounds that are being played go before."""


def run(settings: Settings, job_id: str) -> None:
    """Ends the process with 0 once the job is settled, and else with what makes the hub try it again."""
    folder = settings.job_folder(job_id)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        become_a_child(folder)
    except OSError:  # what keeps it from its folder keeps it from the ledger, and the job says so
        sys.exit(attempt(settings, job_id))
    os.nice(BEHIND)
    with alone(folder / LOCK):  # a runner may still be dying
        sys.exit(attempt(settings, job_id))


def attempt(settings: Settings, job_id: str) -> int:
    """Settles the job; the exit code."""
    database = Database(settings.database_url, pool=1)
    try:
        settle(database, settings, job_id, _report)
    except UnsoundError as broken:
        print(broken, file=sys.stderr, flush=True)  # noqa: T201
        return broken.exit_code
    except Exception:
        traceback.print_exc()
        return OUR_FAULT
    finally:
        database.dispose()
    return 0


def _report(run: RunFolder) -> None:
    """The page of a run that no runner has finished. Money does not wait for it where it cannot be made."""
    try:
        if not (run.path / PAGE).exists():
            write_page(run)
    except Exception:
        traceback.print_exc()
