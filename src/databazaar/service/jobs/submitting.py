"""Submitting a job: every chosen offer is asked for a contract."""

from __future__ import annotations

from sqlalchemy.orm import Session

from databazaar.config.market_file import MarketFile
from databazaar.config.sections import LocalSGDSettings
from databazaar.service import contracts
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Job, Organisation
from databazaar.service.errors import ConflictError
from databazaar.service.jobs.composing import MarketOf, market_of
from databazaar.service.jobs.fitting import check_tables
from databazaar.service.jobs.looking import held_job
from databazaar.service.jobs.own_mode import refuse_unverifiable
from databazaar.service.lives import enter
from databazaar.service.settings import Settings
from databazaar.service.states import JobState


def submit(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Asks all providers at once. Where all of them decide by policy, the job is agreed when this returns."""
    job = held_job(session, caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state} already: look at it again")
    market = check(session, settings, job)
    job.budget = market.parsed.budget_minor
    enter(session, job, JobState.SUBMITTED)
    consumer, needs = session.get_one(Organisation, caller.organisation_id), needs_of(market.parsed)
    for seller in market.sellers:
        contracts.request(session, job, consumer, seller.offer, needs)
    contracts.conclude(session, job)
    return job


def check(session: Session, settings: Settings, job: Job) -> MarketOf:
    """The market that a job makes; refused where it could not be submitted, by its settings or its tables."""
    market = market_of(session, settings, job)
    if job.mode == "own":
        refuse_unverifiable(market.parsed)
    check_tables(settings, market)
    return market


def needs_of(market: MarketFile) -> contracts.Needs:
    oracle = {**LocalSGDSettings().model_dump(), **market.oracle.model_dump()}
    return contracts.Needs(market.model.kind, oracle)
