"""Submitting a job: every chosen offer is asked for a contract."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from databazaar.config.chosen_rules import oracle_settings
from databazaar.config.market_file import MarketFile
from databazaar.data.schema_message import SchemaMessage
from databazaar.service import contracts, specification
from databazaar.service import files as uploads
from databazaar.service.caller import Caller
from databazaar.service.database.tables import File, Job, Organisation
from databazaar.service.errors import ConflictError, InvalidError, ServiceError, TooManyError
from databazaar.service.jobs.composing import MarketOf, data_of, market_of
from databazaar.service.jobs.fitting import Fitted, check_tables, fit_holdout
from databazaar.service.jobs.looking import held_job, job_to_change
from databazaar.service.jobs.own_mode import refuse_unverifiable
from databazaar.service.lives import enter
from databazaar.service.reading import EndedError
from databazaar.service.settings import Settings
from databazaar.service.states import JobState


def look(session: Session, caller: Caller, settings: Settings, job_id: str) -> None:
    """Looks at the tables of a draft before `submit` does, which then has it from here: others wait there to write.
    What is wrong with them is for `submit` to say."""
    job = job_to_change(session, caller, job_id)
    if job.state == JobState.DRAFT:
        try:
            data, holdout = data_of(session, job), job.files.get("holdout")
            if data is not None and holdout is not None:
                fit_holdout(settings, data, session.get_one(File, holdout))
        except (EndedError, TooManyError):  # `submit` would read it again, while others wait
            raise
        except ServiceError:
            pass


def submit(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Composes the job's market and keeps it, then asks all providers at once. Where all of them decide by policy, the
    job is agreed when this returns."""
    job = held_job(session, caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state} already: look at it again")
    market, fitted = _checked(session, settings, job)
    uploads.hold(session, [file.id for file in market.links.values()])
    job.budget = market.parsed.budget_minor
    specification.keep(job, market.settings)
    enter(session, job, JobState.SUBMITTED)
    consumer, needs = session.get_one(Organisation, caller.organisation_id), needs_of(market.parsed, job.mode)
    if fitted is not None:
        needs = replace(needs, columns=fitted.columns)
        if market.parsed.engine.kind == "federated":
            needs = replace(needs, fingerprint=_keep_schema(settings, job, fitted.schema))
    job.needs = asdict(needs)
    for seller in market.sellers:
        contracts.request(session, job, consumer, seller.offer, needs)
    contracts.conclude(session, job)
    return job


def check(session: Session, settings: Settings, job: Job) -> MarketOf:
    """The market that a job makes; refused where it could not be submitted, by its settings or its tables."""
    return _checked(session, settings, job)[0]


def _checked(session: Session, settings: Settings, job: Job) -> tuple[MarketOf, Fitted | None]:
    market = market_of(session, settings, job)
    if job.mode == "own":
        refuse_unverifiable(market.parsed)
    return market, check_tables(settings, market)


def needs_of(market: MarketFile, mode: str) -> contracts.Needs:
    """What the job asks for, as far as its settings say it."""
    data = market.data
    named = None if data.features is None else list(data.features)
    oracle = oracle_settings(market)
    return contracts.Needs(market.model.kind, oracle, mode, data.target, data.task, named, defence=market.defence.kind)


def _keep_schema(settings: Settings, job: Job, schema: dict[str, Any]) -> str:
    """Keeps what sites will be asked by, so that they can look at it; its fingerprint."""
    from databazaar.federation.pins import fingerprint

    try:
        message = SchemaMessage.model_validate(schema)
    except ValidationError as refused:
        what = refused.errors(include_url=False, include_input=False)[0]["loc"][0]
        raise InvalidError(
            f"the hold-out gives a schema that is more than sites take ({what}): name fewer columns in data.features"
        ) from None
    contracts.keep_schema(settings, job.id, message.model_dump_json().encode())
    return fingerprint(message)
