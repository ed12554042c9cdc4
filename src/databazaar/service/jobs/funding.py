"""Funding: the whole budget and the fee on it go into the job's escrow, before its first round."""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.service import cash, journal
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Job
from databazaar.service.errors import ConflictError
from databazaar.service.jobs.looking import held_job
from databazaar.service.lives import contracts_of, enter, enter_contract
from databazaar.service.members import currency_of
from databazaar.service.members import market as the_market
from databazaar.service.states import ContractState, JobState


def escrow_of(budget: int, basis_points: int) -> int:
    """The budget and the fee on all of it, rounded up.

    >>> escrow_of(1000, 250), escrow_of(1, 1), escrow_of(7, 0)
    (1025, 2, 7)
    """
    return budget + -(-budget * basis_points // 10_000)


def fund(session: Session, caller: Caller, job_id: str) -> Job:
    """Locks the money and fixes the fee. A hosted job is queued in the same transaction.

    Cash that was asked back is no longer there to be spent: the operator may have sent it already.
    """
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
