"""Drafts: a job is written down, checked, and changed until it is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from databazaar.service import files as uploads
from databazaar.service import offers as catalogue
from databazaar.service.caller import Caller
from databazaar.service.database.columns import new_id
from databazaar.service.database.tables import Job
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.jobs.composing import ROLES, market_of
from databazaar.service.jobs.looking import held_job
from databazaar.service.lives import noted
from databazaar.service.settings import Settings
from databazaar.service.states import JobState
from databazaar.service.wording import visible

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
    """A new job, which costs nothing yet. `offers` are slugs or ids; `files` are file ids by their roles.

    In mode "own" the consumer runs its own arbiter, and its hold-out stays with it: it uploads no files.
    """
    caller.require_consumer()
    if mode not in MODES:
        raise InvalidError(f"mode = {mode[:40]!r} must be hosted or own: correct it")
    job = Job(id=new_id(), organisation_id=caller.organisation_id, mode=mode, state=JobState.DRAFT)
    _write(session, caller, settings, job, name, spec, files, offers)
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
    _write(
        session,
        caller,
        settings,
        job,
        job.name if name is None else name,
        job.spec if spec is None else spec,
        job.files if files is None else files,
        job.offers if offers is None else offers,
    )
    session.flush()
    return job


def _write(
    session: Session,
    caller: Caller,
    settings: Settings,
    job: Job,
    name: str,
    spec: Mapping[str, Any],
    files: Mapping[str, str],
    offers: Sequence[str],
) -> None:
    """Nothing is changed unless all of it holds."""
    tried = Job(id=job.id, organisation_id=job.organisation_id, mode=job.mode, name=visible(name, "name"))
    tried.spec = dict(spec)
    tried.files = _own_files(session, caller, job.mode, files)
    tried.offers = _chosen(session, caller, offers)
    budget = market_of(session, settings, tried).parsed.budget_minor
    job.name, job.spec, job.files, job.offers, job.budget = tried.name, tried.spec, tried.files, tried.offers, budget


def _own_files(session: Session, caller: Caller, mode: str, files: Mapping[str, str]) -> dict[str, Any]:
    unknown = sorted(set(files) - set(ROLES))
    if unknown:
        raise InvalidError(f"files: {unknown[0][:40]!r} is no role: use {', '.join(ROLES)}")
    if mode == "own" and files:
        raise InvalidError("a consumer that runs its own arbiter keeps its files: leave them out")
    if mode == "hosted" and "holdout" not in files:
        raise InvalidError("files: the hold-out is missing: upload it and name it as holdout", place="data.holdout")
    return {role: uploads.own_file(session, caller, files[role], lock=True).id for role in ROLES if role in files}


def _chosen(session: Session, caller: Caller, offers: Sequence[str]) -> list[str]:
    """Ids of open offers that the caller can see, each once."""
    if len(offers) > MOST_OFFERS:
        raise InvalidError(f"a job takes at most {MOST_OFFERS:,} offers: choose fewer", place="offers")
    chosen = [catalogue.listing(session, caller, offer).id for offer in offers]
    if len(set(chosen)) < len(chosen):
        raise InvalidError("an offer is chosen twice: name each once", place="offers")
    return chosen
