"""A consumer's jobs: drafted, asked for, funded, watched, stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import files, jobs, offers
from databazaar.service.database.tables import File, Job, Offer
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.http.calls import ApiCall
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.job_form import FIELDS, MODES, ROLES, changed_spec, job_fields, read_spec, shown_spec
from databazaar.service.http.job_page import shown_job
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.files import multipart, receive
from databazaar.service.http.routes import Name, Routes, looks_first
from databazaar.service.hub import progress
from databazaar.service.states import JobState

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
Spec = Annotated[
    dict[str, Any],
    Field(description="The sections of market.toml, such as market, data and model, without providers and files."),
]
Files = Annotated[
    dict[Literal["holdout", "train", "audit"], str], Field(description="Ids of uploaded files by their roles.")
]
Offers = Annotated[list[str], Field(max_length=1000, description="Slugs or ids of offers.")]
MADE = "The draft is made: look at it, then ask the providers."


class Events(BaseModel):
    items: list[shapes.Event]


class Rounds(BaseModel):
    """One object a round: round, spent, asked, budget, utility, loss, paid and flagged."""

    items: list[dict[str, Any]]


@routes.page("/jobs", "consumer/jobs", "Jobs", role="consumer", menu=("Buying", "Jobs", 2))
def jobs_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"jobs": jobs.own_jobs(session, page.caller)}


@routes.page("/jobs/new", "consumer/job_new", "New job", role="consumer", forms=("form", "file_form"))
def new_job_page(page: PageContext, session: Session, offer: str = "") -> dict[str, Any]:
    return _form_shown(page, session, chosen=[offer])


@routes.page("/jobs/{job_id}/change", "consumer/job_new", role="consumer", forms=("file_form",))
def change_page(page: PageContext, session: Session, job_id: str) -> dict[str, Any]:
    """A draft in the form that made it, or could have."""
    job = _draft(session, page, job_id)
    form = Form(values={"name": job.name, **shown_spec(job.spec)})
    form.kept = {role: session.get_one(File, file_id) for role, file_id in job.files.items()}
    chosen = list(session.scalars(select(Offer.slug).where(Offer.id.in_(job.offers))))
    return {"title": f"Change {job.name}", "form": form, **_form_shown(page, session, job=job, chosen=chosen)}


def _form_shown(page: PageContext, session: Session, **given: Any) -> dict[str, Any]:
    price = page.currency.format
    choices = [
        (one.slug, one.name, f"{one.provider_name}, {price(one.price)} an access")
        for one in offers.browse(session, page.caller)
    ]
    return {"offers": choices, "settings": job_fields(), "job": None, **given}


@routes.page("/jobs/{job_id}", "consumer/job", role="consumer", forms=("form",))
def job_page(page: PageContext, session: Session, job_id: str) -> dict[str, Any]:
    job = jobs.own_job(session, page.caller, job_id)
    return {"title": job.name, **shown_job(page, session, job)}


@routes.listing("/jobs", shapes.JobSummary)
def own_jobs(
    call: Call,
    session: Session,
    everybodys: Annotated[bool, Query(description="All of the market, for the operator.")] = False,
) -> list[Job]:
    """The caller's jobs, the newest first."""
    return (jobs.all_jobs if everybodys else jobs.own_jobs)(session, call.caller)


def _typed(page: PageContext, form: Form, mode: str) -> dict[str, Any]:
    """What a form says of a job; its files are received."""
    typed = {"name": form.needed("name", "write a name for your list"), "spec": read_spec(form, page.currency)}
    if not form.all("offers"):
        form.blame("offers", "nobody is chosen: tick at least one offer")
    sent = {role: receive(page, form, role, needed=role == "holdout") for role in ROLES} if mode == "hosted" else {}
    return {**typed, "offers": form.all("offers"), "files": {role: file for role, file in sent.items() if file}}


def _new(page: PageContext, form: Form) -> dict[str, Any]:
    mode = form.choice("mode", MODES)
    return {**_typed(page, form, mode), "mode": mode}


def _check(page: PageContext, session: Session, made: Job) -> None:
    """A form is told at once what would keep its job from being submitted."""
    jobs.check(session, page.settings, made)


@routes.form(
    "/jobs",
    "/jobs/{made.id}",
    MADE,
    role="consumer",
    page=new_job_page,
    read=_new,
    fields=FIELDS,
    check=_check,
    uploads=True,
)
@routes.write("/jobs", shapes.Job, 201)
def draft_job(
    call: Call,
    session: Session,
    *,
    name: Name,
    spec: Spec,
    files: Files | None = None,
    offers: Offers,
    mode: Annotated[
        Literal["hosted", "own"], Field(description="With `own` the consumer runs its arbiter, and uploads no files.")
    ] = "hosted",
) -> Job:
    """A new job, which costs nothing yet."""
    chosen: dict[str, Any] = {"spec": spec, "files": files or {}, "offers": offers, "mode": mode}
    return jobs.draft(session, call.caller, call.settings, name=name, **chosen)


@routes.form(
    "/jobs/from-file",
    "/jobs/{made.id}",
    MADE,
    role="consumer",
    page=new_job_page,
    name="file_form",
    read=lambda page, form: {"form": form.posted},
    fields={"market": "market"},
    check=_check,
    uploads=True,
)
def draft_from_file(call: Call, session: Session, **given: Any) -> Job:
    return _draft_from_market(call, session, given["form"])


@routes.write("/jobs/from-market", shapes.Job, 201, late=True, uploads=True, openapi_extra=MARKET_FORM)
def draft_from_market(call: ApiCall, session: Session) -> Job:
    """A new job from a market.toml, whose providers name offers by their slugs, and the files that it names."""
    return _draft_from_market(call, session, call.form or FormData())


def _draft_from_market(call: Call, session: Session, form: FormData) -> Job:
    posted, mode = jobs.from_market_toml(_market_text(form)), form.get("mode", "hosted")
    sent = {
        files.shown_name(part.filename or ""): part for part in form.getlist("file") if isinstance(part, UploadFile)
    }
    kept: dict[str, str] = {}
    for role, path in posted.files.items() if mode != "own" else ():
        part = sent.get(files.shown_name(path))
        if part is None:
            raise InvalidError(f"market.toml names {path[:200]!r} as {role}, which was not sent: send that file too")
        part.file.seek(0)
        kept[role] = files.keep(session, call.caller, call.settings, PurePath(part.filename or "").name, part.file).id
    chosen: Mapping[str, Any] = {"name": posted.name, "spec": posted.spec, "offers": posted.offers}
    return jobs.draft(session, call.caller, call.settings, **chosen, files=kept, mode=str(mode))


def _market_text(form: FormData) -> str:
    part = form.get("market")
    content = part.file.read(MOST_TOML + 1) if isinstance(part, UploadFile) and part.filename else part
    if not content or isinstance(content, UploadFile):
        raise InvalidError(
            "no market.toml was sent: choose a market.toml, or send its text as `market`", place="market"
        )
    if len(content) > MOST_TOML:
        said = f"market.toml has more than {MOST_TOML:,} bytes: send one that a person has written"
        raise InvalidError(said, place="market")
    try:
        return content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        said = f"market.toml: byte {error.start} is not UTF-8: save the file as UTF-8"
        raise InvalidError(said, place="market") from None


@routes.read("/jobs/{job_id}", shapes.Job)
def job(call: Call, session: Session, job_id: str) -> Job:
    """One job, with what was asked for."""
    return jobs.own_job(session, call.caller, job_id)


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


@routes.form(
    "/jobs/{job_id}/change",
    "/jobs/{job_id}",
    "The draft is changed.",
    role="consumer",
    page=change_page,
    read=_changed,
    fields=FIELDS,
    check=_check,
    uploads=True,
)
@routes.write("/jobs/{job_id}/change", shapes.Job)
def change_job(
    call: Call,
    session: Session,
    job_id: str,
    *,
    name: Name | None = None,
    spec: Spec | None = None,
    files: Files | None = None,
    offers: Offers | None = None,
) -> Job:
    """Changes a draft; what is not given stays."""
    given: dict[str, Any] = {"name": name, "spec": spec, "files": files, "offers": offers}
    return jobs.change(session, call.caller, call.settings, job_id, **given)


def _look(call: Call, session: Session, job_id: str) -> None:
    jobs.look(session, call.caller, call.settings, job_id)


@routes.form(
    "/jobs/{job_id}/submit",
    "/jobs/{job_id}",
    lambda page, made: "The providers are asked." if made.state == JobState.SUBMITTED else "All have answered.",
)
@routes.write("/jobs/{job_id}/submit", shapes.Job)
@looks_first(_look)
def submit_job(call: Call, session: Session, job_id: str) -> Job:
    """Asks every chosen offer's provider for a contract."""
    return jobs.submit(session, call.caller, call.settings, job_id)


@routes.read("/jobs/{job_id}/quote", shapes.Quote)
def quote_job(call: Call, session: Session, job_id: str) -> shapes.Quote:
    """What the job will cost, how many rounds it can have, who can be asked, how long it will wait."""
    return jobs.quote(session, call.caller, call.settings, job_id).shown()


@routes.form(
    "/jobs/{job_id}/fund",
    "/jobs/{job_id}",
    lambda page, made: f"{page.currency.format(made.escrow)} is in escrow: the job is {made.state}.",
)
@routes.write("/jobs/{job_id}/fund", shapes.Job)
def fund_job(call: Call, session: Session, job_id: str) -> Job:
    """Locks the budget and the fee on it. A hosted job is queued at once."""
    call.after.append(call.web.wake)
    return jobs.fund(session, call.caller, job_id)


@routes.form(
    "/operator/jobs/{job_id}/stop",
    "/operator/jobs",
    "It is stopped: it ends after the round under way, or in it where that takes too long.",
    role="operator",
)
@routes.form(
    "/jobs/{job_id}/stop",
    "/jobs/{job_id}",
    lambda page, made: (
        "It ends after the round under way." if made.state == "running" else "It is stopped; the money comes back."
    ),
    role="consumer",
)
@routes.write("/jobs/{job_id}/stop", shapes.Job)
def stop_job(call: Call, session: Session, job_id: str) -> Job:
    """Ends the job after the round under way; the rest of the money comes back."""
    call.after.append(call.web.wake)
    return jobs.stop(session, call.caller, call.settings, job_id)


@routes.form("/jobs/{job_id}/withdraw", "/jobs/{job_id}", "The job is withdrawn. It has cost nothing.")
@routes.write("/jobs/{job_id}/withdraw", shapes.Job)
def withdraw_job(call: Call, session: Session, job_id: str) -> Job:
    """Gives up a job that is not funded yet."""
    return jobs.withdraw(session, call.caller, job_id)


@routes.read("/jobs/{job_id}/events", Events)
def job_events(call: Call, session: Session, job_id: str, after: Annotated[int, Query(ge=0)] = 0) -> Events:
    """What has happened to the job, from the event after number `after` on."""
    found = jobs.events_of(session, call.caller, job_id, after)
    return Events(items=[from_row(shapes.Event, one) for one in found])


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
