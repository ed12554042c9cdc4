"""A consumer's jobs: made, asked for, paid, watched, stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service import jobs, offers
from databazaar.service.database.tables import File, Job, Offer
from databazaar.service.errors import ConflictError
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.job_form import (
    MODEL_CHOICES,
    MODES,
    PLACES,
    ROLES,
    changed_spec,
    draft_from_file,
    read_spec,
    shown_spec,
)
from databazaar.service.http.pages.job_view import given_to_page
from databazaar.service.http.pages.uploading import receive
from databazaar.service.http.pages.visits import Posted, Visit, Visiting
from databazaar.service.http.security_bodies import takes_uploads
from databazaar.service.states import JobState

router = APIRouter(include_in_schema=False, prefix="/jobs")
NEXT = "The draft is made: look at it, then ask the providers."


@router.get("")
def own_jobs(visit: Visiting) -> Response:
    visit.caller.require_consumer()
    with visit.read() as session:
        found = jobs.own_jobs(session, visit.caller)
    return visit.render("consumer/jobs", "Jobs", jobs=found)


@router.get("/new")
def new_job(visit: Visiting, offer: str = "") -> Response:
    visit.caller.require_consumer()
    return _new(visit, Form(), Form(), chosen=[offer])


def _new(
    visit: Visit,
    form: Form,
    file_form: Form,
    status: int = 200,
    chosen: Sequence[str] = (),
    job: Job | None = None,
) -> Response:
    """The form of a new job, or of a draft that is changed."""
    with visit.read() as session:
        listings = offers.browse(session, visit.caller)
    choices = [
        (one.slug, one.name, f"{one.provider_name}, {visit.currency.format(one.price)} an access") for one in listings
    ]
    return visit.render(
        "consumer/job_new",
        "New job" if job is None else f"Change {job.name}",
        status,
        form=form,
        file_form=file_form,
        offers=choices,
        chosen=chosen,
        models=MODEL_CHOICES,
        job=job,
    )


@router.post("")
@takes_uploads
def make_job(visit: Visiting, posted: Posted) -> Response:
    visit.caller.require_consumer()
    form = Form(posted)
    mode = form.choice("mode", MODES)
    spec = _read(visit, form, mode)
    job_id = _kept(
        visit,
        form,
        lambda session: jobs.draft(session, visit.caller, visit.settings, spec=spec, mode=mode, **_chosen(form)),
    )
    return _new(visit, form, Form(), 422) if form.faulty else visit.see(f"/jobs/{job_id}", NEXT)


def _kept(visit: Visit, form: Form, deed: Callable[[Session], Job]) -> str:
    """The id of the job that a form without a fault makes or changes. What is wrong with it is said in the form, where
    it can be mended, and nothing is kept."""
    job_id = ""
    with form.trying(**PLACES):
        if not form.faulty:
            with visit.begin() as session:
                job = deed(session)
                jobs.check(session, visit.settings, job)
                job_id = job.id
    return job_id


def _chosen(form: Form) -> dict[str, Any]:
    """What a job is besides its specification: its name, its files and whom it asks."""
    files = {role: file.id for role, file in form.kept.items()}
    return {"name": form.text("name").strip(), "files": files, "offers": form.all("offers")}


def _read(visit: Visit, form: Form, mode: str) -> dict[str, Any]:
    """The job's specification. What else is in the form is looked at, and its files are received."""
    form.needed("name", "write a name for your list")
    spec = read_spec(form, visit.currency)
    if not form.all("offers"):
        form.blame("offers", "nobody is chosen: tick at least one offer")
    for role in ROLES if mode == "hosted" else ():
        receive(visit, form, role, needed=role == "holdout")
    return spec


@router.get("/{job_id}/change")
def change_page(visit: Visiting, job_id: str) -> Response:
    """A draft in the form that made it, or could have."""
    visit.caller.require_consumer()
    job = _draft_of(visit, job_id)
    form = Form(values={"name": job.name, **shown_spec(job.spec)})
    with visit.read() as session:
        form.kept = {role: session.get_one(File, file_id) for role, file_id in job.files.items()}
        chosen = list(session.scalars(select(Offer.slug).where(Offer.id.in_(job.offers))))
    return _new(visit, form, Form(), chosen=chosen, job=job)


@router.post("/{job_id}/change")
@takes_uploads
def change(visit: Visiting, posted: Posted, job_id: str) -> Response:
    visit.caller.require_consumer()
    job, form = _draft_of(visit, job_id), Form(posted)
    spec = _read(visit, form, job.mode)

    def deed(session: Session) -> Job:
        merged = changed_spec(job.spec, spec)
        return jobs.change(session, visit.caller, visit.settings, job_id, spec=merged, **_chosen(form))

    _kept(visit, form, deed)
    if form.faulty:
        return _new(visit, form, Form(), 422, job=job)
    return visit.see(f"/jobs/{job_id}", "The draft is changed.")


def _draft_of(visit: Visit, job_id: str) -> Job:
    with visit.read() as session:
        job = jobs.own_job(session, visit.caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state}, and only a draft can be changed: make a new one")
    return job


@router.post("/from-file")
@takes_uploads
def make_job_from_file(visit: Visiting, posted: Posted) -> Response:
    visit.caller.require_consumer()
    form = Form(posted)
    job_id = draft_from_file(visit, form)
    return _new(visit, Form(), form, 422) if form.faulty else visit.see(f"/jobs/{job_id}", NEXT)


@router.get("/{job_id}")
def one_job(visit: Visiting, job_id: str) -> Response:
    visit.caller.require_consumer()
    with visit.read() as session:
        job = jobs.own_job(session, visit.caller, job_id)
        return visit.render("consumer/job", job.name, **given_to_page(visit, session, job, Form()))


def _done(visit: Visit, job_id: str, deed: Callable[[Session], Job], told: Callable[[Job], str]) -> Response:
    """Does what a button says, and leads back to the job, which tells what has come of it."""
    with visit.refusals() as refused, visit.begin() as session:
        words = told(deed(session))
    return visit.see(f"/jobs/{job_id}", refused[0] if refused else words, kind="bad" if refused else "good")


@router.post("/{job_id}/submit")
def submit(visit: Visiting, _: Posted, job_id: str) -> Response:
    def told(job: Job) -> str:
        return "All have answered." if job.state != "submitted" else "The providers are asked."

    with visit.read() as session:
        jobs.look(session, visit.caller, visit.settings, job_id)
    return _done(visit, job_id, lambda session: jobs.submit(session, visit.caller, visit.settings, job_id), told)


@router.post("/{job_id}/fund")
def fund(visit: Visiting, _: Posted, job_id: str) -> Response:
    def told(job: Job) -> str:
        return f"{visit.currency.format(job.escrow)} is in escrow: the job is {job.state}."

    return _done(visit, job_id, lambda session: jobs.fund(session, visit.caller, job_id), told)


@router.post("/{job_id}/stop")
def stop(visit: Visiting, _: Posted, job_id: str) -> Response:
    def told(job: Job) -> str:
        return (
            "It ends after the round under way." if job.state == "running" else "It is stopped; the money comes back."
        )

    visit.caller.require_consumer()
    return _done(visit, job_id, lambda session: jobs.stop(session, visit.caller, visit.settings, job_id), told)


@router.post("/{job_id}/withdraw")
def withdraw(visit: Visiting, _: Posted, job_id: str) -> Response:
    def told(_: Job) -> str:
        return "The job is withdrawn. It has cost nothing."

    return _done(visit, job_id, lambda session: jobs.withdraw(session, visit.caller, job_id), told)
