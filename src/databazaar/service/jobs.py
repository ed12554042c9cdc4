"""Jobs as a consumer finds, writes, funds and ends them. `submission` asks the providers; the rest is the hub's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from databazaar.client import shapes
from databazaar.codes import Code
from databazaar.config.limits import refuse_endless
from databazaar.config.toml_text import toml_text
from databazaar.files import write_whole
from databazaar.service import cash, journal, lifecycle, specification
from databazaar.service import files as uploads
from databazaar.service import offers as catalogue
from databazaar.service.caller import Caller, own_row
from databazaar.service.database.tables import Job, JobEvent, new_id
from databazaar.service.errors import ConflictError, InvalidError, MissingError, as_invalid
from databazaar.service.lifecycle import ContractState, JobState
from databazaar.service.members import currency_of
from databazaar.service.members import market as the_market
from databazaar.service.names import visible
from databazaar.service.settings import Settings
from databazaar.service.specification import ROLES, compose

CONSUMER, OPERATOR = "consumer", "operator"
"""Who has stopped a job."""


def own_job(session: Session, caller: Caller, job_id: str) -> Job:
    """A job of the caller's organisation; the operator sees any."""
    caller.require("read")
    job = session.get(Job, job_id)
    if job is None or not (job.organisation_id == caller.organisation_id or caller.sees_all):
        raise MissingError(lifecycle.NO_JOB)
    return job


def job_to_change(session: Session, caller: Caller, job_id: str, lock: bool = True) -> Job:
    """A job that the caller may change: its own alone."""
    caller.require_consumer()
    return own_row(session, caller, Job, job_id, lifecycle.NO_JOB, lock)


def own_jobs(session: Session, caller: Caller, everybodys: bool = False) -> list[Job]:
    """The caller's jobs, the newest first; everybody's for the operator who asks for them."""
    caller.require("read")
    found = select(Job).order_by(Job.created_at.desc(), Job.id)
    if everybodys:
        caller.require_operator()
        return list(session.scalars(found))
    return list(session.scalars(found.where(Job.organisation_id == caller.organisation_id)))


def events_of(session: Session, caller: Caller, job_id: str) -> list[JobEvent]:
    """What has happened to a job, in order."""
    job = own_job(session, caller, job_id)
    query = select(JobEvent).where(JobEvent.job_id == job.id)
    return list(session.scalars(query.order_by(JobEvent.number)))


def from_market_toml(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of a market.toml as `draft` takes them, and the names of its files by role, which must be uploaded with
    it. Whether they hold is found out when they are drafted."""
    try:
        given = tomllib.loads(text)
        with as_invalid("market.toml: "):
            refuse_endless(given)
    except (ValueError, RecursionError) as fault:
        said = f"market.toml: the file is not valid TOML: {fault}: correct that line"
        raise InvalidError(said, place="market") from None
    offers = _offers(given.pop("providers", []))
    spec = {name: dict(section) if isinstance(section, Mapping) else section for name, section in given.items()}
    name = _taken(spec, "market", "name") or "market"
    _taken(spec, "consumer", "name")
    sections = {"holdout": "data", "train": "consumer", "audit": "data"}
    files = {role: file for role, section in sections.items() if (file := _taken(spec, section, role)) is not None}
    return {"name": name, "spec": spec, "offers": offers}, files


def _taken(spec: dict[str, Any], section: str, setting: str) -> str | None:
    """Takes a text out of a section; a share of the hold-out, which is a number, stays."""
    inner = spec.get(section)
    if not isinstance(inner, dict) or not isinstance(inner.get(setting), str):
        return None
    return str(inner.pop(setting))


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
    files: Mapping[str, str] | None = None,
    offers: Sequence[str],
    mode: str = "hosted",
) -> Job:
    """A new job, which costs nothing yet. `spec` has the sections of market.toml without providers and files, `files`
    the ids of uploaded files by role (holdout, train, audit), `offers` slugs or ids. With the mode `own`, and not
    `hosted`, the consumer runs its arbiter, keeps its hold-out and uploads no files."""
    caller.require_consumer()
    if mode not in MODES:
        raise InvalidError(f"mode = {mode[:40]!r} must be hosted or own: correct it")
    job = Job(id=new_id(), organisation_id=caller.organisation_id, mode=mode, state=JobState.DRAFT)
    given = {"name": name, "spec": spec, "files": files or {}, "offers": offers}
    _write(session, caller, settings, job, given)
    session.add(job)
    lifecycle.noted(session, job, "")
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
    job = job_to_change(session, caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state}, and only a draft can be changed: make a new one")
    given = {"name": name, "spec": spec, "files": files, "offers": offers}
    kept = {field: getattr(job, field) if value is None else value for field, value in given.items()}
    _write(session, caller, settings, job, kept)
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


RECENT_RUNS = 20
"""So many runs say how long one takes."""


def quote(session: Session, caller: Caller, settings: Settings, job_id: str) -> shapes.Quote:
    """What a job that is not funded yet will cost, how many rounds it can have, who can be asked, how long it waits:
    over the offers as they are now, or what was kept once it is submitted."""
    job = own_job(session, caller, job_id)
    if job.state not in (JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED):
        raise ConflictError(f"the job is {job.state}: a quote is for one that is not funded yet")
    drafted = job.state == JobState.DRAFT
    market = toml_text(compose(session, settings, job).settings) if drafted else specification.text_of(job)
    rate = the_market(session).fee_basis_points
    escrow = escrow_of(job.budget, rate)
    return shapes.Quote(
        budget=job.budget,
        fee_basis_points=rate,
        most_fee=escrow - job.budget,
        escrow=escrow,
        wait=expected_wait(session, settings),
        quote=_simulated(market, settings.job_folder(job.id)),
    )


@lru_cache(maxsize=200)
def _simulated(market: str, folder: Path) -> dict[str, Any]:
    """The quote of a market.toml, which is simulated once, not for every view of a page."""
    from databazaar.config.quote import quote_of

    return quote_of(specification.parsed_text(market), folder, "job").to_dict()


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
        .limit(RECENT_RUNS)
    )
    taken = [(end - start).total_seconds() for start, end in session.execute(pairs)]
    return sum(taken) / len(taken) * (before - runners + 1) / runners if taken else None


def escrow_of(budget: int, basis_points: int) -> int:
    """The budget and the fee on all of it, rounded up.

    >>> escrow_of(1000, 250), escrow_of(1, 1), escrow_of(7, 0)
    (1025, 2, 7)
    """
    return budget + -(-budget * basis_points // 10_000)


def fund(session: Session, caller: Caller, job_id: str) -> Job:
    """Locks the money, except cash that was asked back, fixes the fee, and queues a hosted job."""
    caller.require("money")
    job = job_to_change(session, caller, job_id)
    if job.state != JobState.AGREED:
        raise ConflictError(f"the job is {job.state}, and only one that is agreed can be funded: look at it again")
    rate = the_market(session).fee_basis_points
    escrow = escrow_of(job.budget, rate)
    contracts = lifecycle.contracts_of(session, job, lock=True)
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
            lifecycle.enter_contract(session, contract, ContractState.ACTIVE)
    lifecycle.enter(session, job, JobState.FUNDED)
    if job.mode == "hosted":
        lifecycle.enter(session, job, JobState.QUEUED)
    postings = {journal.cash(caller.slug): -escrow, journal.escrow(job.id): escrow}
    journal.post(session, "fund", f"fund:{job.id}", postings, job_id=job.id)
    return job


STOP = "stop"
"""The file in a job's folder that tells its runner to end after the round under way."""


def stop(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Ends a job early; what is not spent comes back. A running one ends after its round, or in it where that takes too
    long; one that waits is settled at once; that of an own arbiter is ended by the notary. Stopping twice does nothing
    more. The operator may stop any job."""
    job = lifecycle.locked_job(session, job_id) if caller.sees_all else job_to_change(session, caller, job_id)
    own = job.organisation_id == caller.organisation_id and caller.consumes
    party = CONSUMER if own else OPERATOR
    asked = Code.of("asked-to-stop", party=party)
    if job.state not in (JobState.FUNDED, JobState.QUEUED, JobState.RUNNING):
        raise ConflictError(f"the job is {job.state}: only one that is funded and not over can be stopped")
    if job.state == JobState.RUNNING or job.mode == "own":
        if not job.stopped_by:
            job.stopped_by = party
            lifecycle.noted(session, job, asked)
        if job.mode == "hosted":
            write_whole(settings.job_folder(job.id) / STOP, b"", mode=0o600)
        return job
    job.stopped_by = party
    lifecycle.enter(session, job, JobState.SETTLING, asked)
    return job


def withdraw(session: Session, caller: Caller, job_id: str) -> Job:
    """Gives up a job that is not funded yet. Its contracts end unused."""
    job = job_to_change(session, caller, job_id)
    if job.state not in (JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED):
        raise ConflictError(f"the job is {job.state}, and only one that is not funded can be withdrawn: stop it")
    lifecycle.enter(session, job, JobState.REFUNDED, Code("withdrawn"))
    return job
