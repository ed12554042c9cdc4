"""Jobs as a consumer finds and writes them: drafts are checked and changed until they are submitted."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.config.limits import refuse_endless
from databazaar.service import files as uploads
from databazaar.service import offers as catalogue
from databazaar.service.caller import Caller
from databazaar.service.database.columns import new_id
from databazaar.service.database.tables import Job, JobEvent
from databazaar.service.errors import ConflictError, InvalidError, MissingError, as_invalid
from databazaar.service.lifecycle import locked_job, noted
from databazaar.service.names import visible
from databazaar.service.settings import Settings
from databazaar.service.specification import ROLES, compose
from databazaar.service.states import JobState

CONSUMER, OPERATOR = "consumer", "operator"
"""Who has stopped a job."""
_MISSING = "there is no such job: look at the list of your jobs"


def own_job(session: Session, caller: Caller, job_id: str) -> Job:
    """A job of the caller's organisation; the operator sees any."""
    caller.require("read")
    job = session.get(Job, job_id)
    if job is None or not (job.organisation_id == caller.organisation_id or caller.sees_all):
        raise MissingError(_MISSING)
    return job


def refuse_others(session: Session, caller: Caller, job_id: str) -> None:
    """Whether the caller may look at a job, without the job: it is asked often."""
    caller.require("read")
    whose = session.scalar(select(Job.organisation_id).where(Job.id == job_id))
    if whose is None or not (whose == caller.organisation_id or caller.sees_all):
        raise MissingError(_MISSING)


def job_to_change(session: Session, caller: Caller, job_id: str) -> Job:
    """A job that the caller may change: its own alone."""
    caller.require_consumer()
    job = session.get(Job, job_id)
    if job is None or job.organisation_id != caller.organisation_id:
        raise MissingError(_MISSING)
    return job


def held_job(session: Session, caller: Caller, job_id: str) -> Job:
    """One that the caller is about to change, held until the transaction ends."""
    return locked_job(session, job_to_change(session, caller, job_id).id)


def job_to_stop(session: Session, caller: Caller, job_id: str) -> tuple[Job, str]:
    """A locked job to stop, and as whom the caller stops it: its consumer stops its own, the operator any."""
    if not caller.sees_all:
        return held_job(session, caller, job_id), CONSUMER
    job = locked_job(session, job_id)
    return job, CONSUMER if caller.consumes and job.organisation_id == caller.organisation_id else OPERATOR


def own_jobs(session: Session, caller: Caller) -> list[Job]:
    """The caller's, the newest first."""
    caller.require("read")
    own = select(Job).where(Job.organisation_id == caller.organisation_id)
    return list(session.scalars(own.order_by(Job.created_at.desc(), Job.id)))


def all_jobs(session: Session, caller: Caller) -> list[Job]:
    """Everybody's, the newest first, for the operator."""
    caller.require_operator()
    return list(session.scalars(select(Job).order_by(Job.created_at.desc(), Job.id)))


def events_of(session: Session, caller: Caller, job_id: str, after: int = 0) -> list[JobEvent]:
    """What has happened to a job, in order, from the event after number `after` on."""
    job = own_job(session, caller, job_id)
    query = select(JobEvent).where(JobEvent.job_id == job.id, JobEvent.number > after)
    return list(session.scalars(query.order_by(JobEvent.number)))


@dataclass(frozen=True)
class PostedMarket:
    """What `draft` needs. `files` are the names in market.toml by role, which must be uploaded with it."""

    name: str
    spec: dict[str, Any]
    files: dict[str, str]
    offers: list[str]


def from_market_toml(text: str) -> PostedMarket:
    """The parts of a market.toml. Whether they hold is found out when they are drafted."""
    try:
        given = tomllib.loads(text)
        with as_invalid("market.toml: "):
            refuse_endless(given)
    except (ValueError, RecursionError) as fault:
        raise InvalidError(f"market.toml: the file is not valid TOML: {fault}: correct that line") from None
    offers = _offers(given.pop("providers", []))
    spec = {name: dict(section) if isinstance(section, Mapping) else section for name, section in given.items()}
    name = _taken(spec, "market", "name") or "market"
    _taken(spec, "consumer", "name")
    named = {
        "holdout": _taken(spec, "data", "holdout"),
        "train": _taken(spec, "consumer", "train"),
        "audit": _taken(spec, "data", "audit"),
    }
    return PostedMarket(name, spec, {role: file for role, file in named.items() if file is not None}, offers)


def _taken(spec: dict[str, Any], section: str, setting: str) -> str | None:
    """Takes a text out of a section; a share of the hold-out, which is a number, stays."""
    inner = spec.get(section)
    if not isinstance(inner, dict) or not isinstance(inner.get(setting), str):
        return None
    value: str = inner.pop(setting)
    return value


def _offers(providers: Any) -> list[str]:
    if not isinstance(providers, list):
        raise InvalidError("market.toml: providers must be [[providers]] sections, in double brackets: correct them")
    offers = []
    for place, provider in enumerate(providers):
        id = provider.get("id") if isinstance(provider, dict) else None
        if not isinstance(id, str):
            raise InvalidError(f"market.toml: providers[{place}].id is missing: name an offer by its slug")
        if more := sorted(set(provider) - {"id"}):
            raise InvalidError(
                f"market.toml: providers[{place}].{more[0]} is what the contract with {id!r} says: leave it out"
            )
        offers.append(id)
    return offers


MODES = ("hosted", "own")
MOST_OFFERS = 1000


def draft(
    session: Session,
    caller: Caller,
    settings: Settings,
    *,
    name: str,
    spec: Mapping[str, Any],
    files: Mapping[str, str],
    offers: Sequence[str],
    mode: str = "hosted",
) -> Job:
    """A new job, which costs nothing yet. `offers` are slugs or ids, `files` file ids by role; a consumer with its own
    arbiter (mode "own") keeps its hold-out and uploads none."""
    caller.require_consumer()
    if mode not in MODES:
        raise InvalidError(f"mode = {mode[:40]!r} must be hosted or own: correct it")
    job = Job(id=new_id(), organisation_id=caller.organisation_id, mode=mode, state=JobState.DRAFT)
    given = {"name": name, "spec": spec, "files": files, "offers": offers}
    _write(session, caller, settings, job, given)
    session.add(job)
    noted(session, job, "")
    return job


def change(
    session: Session,
    caller: Caller,
    settings: Settings,
    job_id: str,
    *,
    name: str | None = None,
    spec: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    offers: Sequence[str] | None = None,
) -> Job:
    """Another name, specification, files or offers for a draft; what is not given stays."""
    job = held_job(session, caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state}, and only a draft can be changed: make a new one")
    given = {"name": name, "spec": spec, "files": files, "offers": offers}
    kept = {field: getattr(job, field) if value is None else value for field, value in given.items()}
    _write(session, caller, settings, job, kept)
    session.flush()
    return job


def _write(session: Session, caller: Caller, settings: Settings, job: Job, given: Mapping[str, Any]) -> None:
    """Nothing is changed unless all of it holds."""
    tried = Job(id=job.id, organisation_id=job.organisation_id, mode=job.mode, name=visible(given["name"], "name"))
    tried.spec = dict(given["spec"])
    tried.files = _own_files(session, caller, job.mode, given["files"])
    tried.offers = _chosen(session, caller, given["offers"])
    budget = compose(session, settings, tried).parsed.budget_minor
    job.name, job.spec, job.files, job.offers, job.budget = tried.name, tried.spec, tried.files, tried.offers, budget


def _own_files(session: Session, caller: Caller, mode: str, files: Mapping[str, str]) -> dict[str, Any]:
    unknown = sorted(set(files) - set(ROLES))
    if unknown:
        raise InvalidError(f"files: {unknown[0][:40]!r} is no role: use {', '.join(ROLES)}")
    if mode == "own" and files:
        raise InvalidError("a consumer that runs its own arbiter keeps its files: leave them out")
    if mode == "hosted" and "holdout" not in files:
        raise InvalidError("files: the hold-out is missing: upload it and name it as holdout")
    return {role: uploads.own_file(session, caller, files[role], lock=True).id for role in ROLES if role in files}


def _chosen(session: Session, caller: Caller, offers: Sequence[str]) -> list[str]:
    """Ids of open offers that the caller can see, each once."""
    if len(offers) > MOST_OFFERS:
        raise InvalidError(f"a job takes at most {MOST_OFFERS:,} offers: choose fewer")
    chosen = [catalogue.listing(session, caller, offer).id for offer in offers]
    if len(set(chosen)) < len(chosen):
        raise InvalidError("an offer is chosen twice: name each once")
    return chosen
