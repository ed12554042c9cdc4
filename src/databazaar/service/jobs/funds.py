"""The money of a job: its quote, its escrow, and its end before the budget is spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.codes import Code
from databazaar.files import write_whole
from databazaar.service import cash, journal, specification
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Job
from databazaar.service.errors import ConflictError
from databazaar.service.hub.queue import expected_wait
from databazaar.service.jobs.drafts import held_job, job_to_stop, own_job
from databazaar.service.lifecycle import contracts_of, enter, enter_contract, noted
from databazaar.service.members import currency_of
from databazaar.service.members import market as the_market
from databazaar.service.settings import Settings
from databazaar.service.specification import compose
from databazaar.service.states import ContractState, JobState
from databazaar.settings import plain

if TYPE_CHECKING:
    from databazaar.market.quoting import Quote


LATEST: dict[str, tuple[str, Quote]] = {}
"""The latest quote of each job, with what it was made from: it is simulated once, not for every view of a page."""
MOST_LATEST = 200


@dataclass(frozen=True)
class JobQuote:
    """`quote` is the run's, as `bazaar quote` gives it. `escrow` is the budget and the fee on all of it; what is not
    spent comes back. `wait` is in seconds, None where nothing is known."""

    quote: Quote
    budget: int
    fee_basis_points: int
    most_fee: int
    escrow: int
    wait: float | None

    def shown(self) -> shapes.Quote:
        """As programs see it."""
        return from_row(shapes.Quote, self, quote=self.quote.to_dict())


def quote(session: Session, caller: Caller, settings: Settings, job_id: str) -> JobQuote:
    """For a job that is not funded yet: over the offers as they are now, or what was kept once it is submitted."""
    from databazaar.config.quote import quote_of

    job = own_job(session, caller, job_id)
    if job.state not in (JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED):
        raise ConflictError(f"the job is {job.state}: a quote is for one that is not funded yet")
    market = compose(session, settings, job).parsed if job.state == JobState.DRAFT else specification.market_of(job)
    asked = json.dumps(plain(market))
    if LATEST.get(job.id, ("",))[0] != asked:
        if len(LATEST) >= MOST_LATEST:
            LATEST.clear()
        LATEST[job.id] = asked, quote_of(market, settings.job_folder(job.id), "job")
    quoted = LATEST[job.id][1]
    rate = the_market(session).fee_basis_points
    escrow = escrow_of(job.budget, rate)
    return JobQuote(quoted, job.budget, rate, escrow - job.budget, escrow, expected_wait(session, settings))


def escrow_of(budget: int, basis_points: int) -> int:
    """The budget and the fee on all of it, rounded up.

    >>> escrow_of(1000, 250), escrow_of(1, 1), escrow_of(7, 0)
    (1025, 2, 7)
    """
    return budget + -(-budget * basis_points // 10_000)


def fund(session: Session, caller: Caller, job_id: str) -> Job:
    """Locks the money, except cash that was asked back, fixes the fee, and queues a hosted job."""
    caller.require("money")
    job = held_job(session, caller, job_id)
    if job.state != JobState.AGREED:
        raise ConflictError(f"the job is {job.state}, and only one that is agreed can be funded: look at it again")
    rate = the_market(session).fee_basis_points
    escrow = escrow_of(job.budget, rate)
    contracts = contracts_of(session, job, lock=True)
    journal.lock(session)  # so that nobody asks for the same cash back meanwhile
    there = cash.available(session, caller.slug, "withdraw")
    if there < escrow:
        money = currency_of(session).format
        raise ConflictError(
            f"the job needs {money(escrow)} and {money(there)} are there: deposit {money(escrow - there)} more"
        )
    job.fee_basis_points, job.escrow = rate, escrow
    for contract in contracts:
        if contract.state == ContractState.AGREED:
            enter_contract(session, contract, ContractState.ACTIVE)
    enter(session, job, JobState.FUNDED)
    if job.mode == "hosted":
        enter(session, job, JobState.QUEUED)
    postings = {journal.cash(caller.slug): -escrow, journal.escrow(job.id): escrow}
    journal.post(session, "fund", f"fund:{job.id}", postings, job_id=job.id)
    return job


STOP = "stop"
"""The file in a job's folder that tells its runner to end after the round under way."""


def stop(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Ends a job early; what is not spent comes back. A running one ends after its round, or in it where that takes too
    long; one that waits is settled at once; that of an own arbiter is ended by the notary. Stopping twice does nothing
    more."""
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
