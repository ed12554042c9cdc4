"""A consumer's jobs: drafted, asked for, funded, watched, stopped."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile

from databazaar.client import shapes
from databazaar.service import files, jobs, offers, submission
from databazaar.service.database.tables import File, Job, Offer
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.job_form import DETAILS, FIELDS, changed_spec, job_fields, read_spec, shown_spec
from databazaar.service.http.job_page import shown_job
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.files import multipart, receive
from databazaar.service.http.routes import Routes
from databazaar.service.hub import progress
from databazaar.service.lifecycle import JobState
from databazaar.service.specification import ROLES

routes = Routes("jobs")
MOST_ROUNDS, MOST_TOML = 10_000, 2**20
MARKET_FORM = multipart(
    "market",
    market={"type": "string", "description": "The text of market.toml, or the file."},
    mode={"type": "string", "enum": ["hosted", "own"]},
    file={
        "type": "array",
        "items": {"type": "string", "format": "binary"},
        "description": "The files that market.toml names, under the names that it has for them.",
    },
)
MADE = "The draft is made: look at it, then ask the providers."


class Rounds(BaseModel):
    """One object a round: round, spent, asked, budget, utility, loss, paid and flagged."""

    items: list[dict[str, Any]]


@routes.page("/jobs", "consumer/jobs", "Jobs", role="consumer", menu=("Buying", 2))
def jobs_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"jobs": jobs.own_jobs(session, page.caller)}


@routes.page("/jobs/new", "consumer/job_new", "New job", role="consumer")
def new_job_page(page: PageContext, session: Session, offer: str = "") -> dict[str, Any]:
    return _form_shown(page, session, chosen=[offer])


@routes.page("/jobs/{job_id}/change", "consumer/job_new", role="consumer")
def change_page(page: PageContext, session: Session, job_id: str) -> dict[str, Any]:
    """A draft in the form that made it, or could have."""
    job = _draft(session, page, job_id)
    form = Form(values={"name": job.name, **shown_spec(job.spec)})
    form.kept = {role: session.get_one(File, file_id) for role, file_id in job.files.items()}
    chosen = list(session.scalars(select(Offer.slug).where(Offer.id.in_(job.offers))))
    return {
        "title": f"Change {job.name}",
        "form": form,
        "file_form": Form(),
        **_form_shown(page, session, job=job, chosen=chosen),
    }


def _form_shown(page: PageContext, session: Session, **given: Any) -> dict[str, Any]:
    price = page.currency.format
    choices = [
        (one.slug, one.name, f"{one.provider_name}, {price(one.price)} an access")
        for one in offers.browse(session, page.caller)
    ]
    return {"offers": choices, "settings": job_fields(), "details": DETAILS, "job": None, **given}


@routes.page("/jobs/{job_id}", "consumer/job", role="consumer")
def job_page(page: PageContext, session: Session, job_id: str) -> dict[str, Any]:
    job = jobs.own_job(session, page.caller, job_id)
    return {"title": job.name, "form": Form(), **shown_job(page, session, job)}


routes.listing("/jobs", shapes.JobSummary)(jobs.own_jobs)


def _typed(page: PageContext, form: Form, mode: str) -> dict[str, Any]:
    """What a form says of a job; its files are received."""
    typed = {"name": form.needed("name", "write a name for your list"), "spec": read_spec(form, page.currency)}
    if not form.all("offers"):
        form.blame("offers", "nobody is chosen: tick at least one offer")
    sent = {role: receive(page, form, role, needed=role == "holdout") for role in ROLES} if mode == "hosted" else {}
    return {**typed, "offers": form.all("offers"), "files": {role: file for role, file in sent.items() if file}}


def _new(page: PageContext, form: Form) -> dict[str, Any]:
    mode = form.choice("mode", jobs.MODES)
    return {**_typed(page, form, mode), "mode": mode}


routes.write("/jobs", shapes.Job, 201)(jobs.draft)
routes.form(
    "/jobs", MADE, "/jobs/{made.id}", page=new_job_page, read=_new, fields=FIELDS, check=submission.check, uploads=True
)(jobs.draft)


@routes.form(
    "/jobs/from-file",
    MADE,
    "/jobs/{made.id}",
    page=new_job_page,
    name="file_form",
    fields={"market": "market"},
    check=submission.check,
    uploads=True,
)
@routes.write("/jobs/from-market", shapes.Job, 201, late=True, uploads=True, openapi_extra=MARKET_FORM)
def draft_from_market(call: Call, session: Session) -> Job:
    """A new job from a market.toml, whose providers name offers by their slugs, and the files that it names."""
    form = call.posted
    (given, named), mode = jobs.from_market_toml(_market_text(form)), form.get("mode", "hosted")
    sent = {
        files.shown_name(part.filename or ""): part for part in form.getlist("file") if isinstance(part, UploadFile)
    }
    kept: dict[str, str] = {}
    for role, path in named.items() if mode != "own" else ():
        part = sent.get(files.shown_name(path))
        if part is None:
            raise InvalidError(f"market.toml names {path[:200]!r} as {role}, which was not sent: send that file too")
        part.file.seek(0)
        kept[role] = files.keep(session, call.caller, call.settings, PurePath(part.filename or "").name, part.file).id
    return jobs.draft(session, call.caller, call.settings, **given, files=kept, mode=str(mode))


def _market_text(form: FormData) -> str:
    part = form.get("market")
    content = part.file.read(MOST_TOML + 1) if isinstance(part, UploadFile) and part.filename else part
    if not content or isinstance(content, UploadFile):
        said = "no market.toml was sent: choose a market.toml, or send its text as `market`"
        raise InvalidError(said, place="market")
    if len(content) > MOST_TOML:
        said = f"market.toml has more than {MOST_TOML:,} bytes: send one that a person has written"
        raise InvalidError(said, place="market")
    try:
        return content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        said = f"market.toml: byte {error.start} is not UTF-8: save the file as UTF-8"
        raise InvalidError(said, place="market") from None


routes.read("/jobs/{job_id}", shapes.Job)(jobs.own_job)


def _draft(session: Session, call: Call, job_id: str) -> Job:
    job = jobs.own_job(session, call.caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state}, and only a draft can be changed: make a new one")
    return job


def _changed(page: PageContext, form: Form) -> dict[str, Any]:
    """What the form says now; what it does not speak of stays, as a market.toml had it."""
    with page.read() as session:
        job = _draft(session, page, page.request.path_params["job_id"])
    typed = _typed(page, form, job.mode)
    return {**typed, "spec": changed_spec(job.spec, typed["spec"])}


routes.write("/jobs/{job_id}/change", shapes.Job)(jobs.change)
routes.form(
    "/jobs/{job_id}/change",
    "The draft is changed.",
    "/jobs/{job_id}",
    page=change_page,
    read=_changed,
    fields=FIELDS,
    check=submission.check,
    uploads=True,
)(jobs.change)


@routes.form(
    "/jobs/{job_id}/submit",
    lambda page, made: "The providers are asked." if made.state == JobState.SUBMITTED else "All have answered.",
    "/jobs/{job_id}",
)
@routes.write("/jobs/{job_id}/submit", shapes.Job, late=True)
def submit(call: Call, session: Session, job_id: str) -> Job:
    """Composes the job's market, keeps it, and asks all providers; those that decide by policy do so at once."""
    with call.read() as looking:  # takes long, and nobody waits to write meanwhile
        submission.look(looking, call.caller, call.settings, job_id)
    return submission.submit(session, call.caller, call.settings, job_id)


routes.read("/jobs/{job_id}/quote", shapes.Quote)(jobs.quote)
routes.write("/jobs/{job_id}/fund", shapes.Job)(jobs.fund)
routes.form(
    "/jobs/{job_id}/fund",
    lambda page, made: f"{page.currency.format(made.escrow)} is in escrow: the job is {made.state}.",
    "/jobs/{job_id}",
)(jobs.fund)
routes.write("/jobs/{job_id}/stop", shapes.Job)(jobs.stop)
routes.form(
    "/jobs/{job_id}/stop",
    lambda page, made: (
        "It ends after the round under way." if made.state == "running" else "It is stopped; the money comes back."
    ),
    "/jobs/{job_id}",
    role="consumer",
)(jobs.stop)
routes.form(
    "/operator/jobs/{job_id}/stop",
    "It is stopped: it ends after the round under way, or in it where that takes too long.",
    "/operator/jobs",
    role="operator",
)(jobs.stop)
routes.write("/jobs/{job_id}/withdraw", shapes.Job)(jobs.withdraw)
routes.form("/jobs/{job_id}/withdraw", "The job is withdrawn. It has cost nothing.", "/jobs/{job_id}")(jobs.withdraw)


routes.listing("/jobs/{job_id}/events", shapes.Event, "number")(jobs.events_of)


@routes.read("/jobs/{job_id}/rounds", Rounds)
def job_rounds(
    call: Call,
    session: Session,
    job_id: str,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROUNDS)] = 1000,
) -> Rounds:
    """The job's rounds from the one after `after` on."""
    jobs.own_job(session, call.caller, job_id)
    return Rounds(items=progress.rounds(call.settings, job_id, after, limit))
