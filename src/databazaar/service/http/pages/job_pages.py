"""A consumer's jobs: made, asked for, paid, watched, stopped."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from databazaar.service import jobs, offers
from databazaar.service.database.tables import Job
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.job_form import MODELS, MODES, PLACES, ROLES, draft_from_file, read_spec
from databazaar.service.http.pages.job_view import given_to_page
from databazaar.service.http.pages.uploading import receive
from databazaar.service.http.pages.visits import Posted, Visit, Visiting
from databazaar.service.http.security_bodies import takes_uploads

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
    return _new(visit, Form(), Form(), chosen=offer)


def _new(visit: Visit, form: Form, file_form: Form, status: int = 200, chosen: str = "") -> Response:
    with visit.read() as session:
        listings = offers.browse(session, visit.caller)
    choices = [
        (one.slug, one.name, f"{one.provider_name}, {visit.currency.format(one.price)} an access") for one in listings
    ]
    return visit.render(
        "consumer/job_new",
        "New job",
        status,
        form=form,
        file_form=file_form,
        offers=choices,
        chosen=[chosen],
        models=MODELS,
    )


@router.post("")
@takes_uploads
def make_job(visit: Visiting, posted: Posted) -> Response:
    visit.caller.require_consumer()
    form, job_id = Form(posted), ""
    name = form.needed("name", "write a name for your list")
    mode = form.choice("mode", MODES)
    spec = read_spec(form, visit.currency)
    if not form.all("offers"):
        form.blame("offers", "nobody is chosen: tick at least one offer")
    for role in ROLES if mode == "hosted" else ():
        receive(visit, form, role, needed=role == "holdout")
    with form.trying(**PLACES):
        if not form.faulty:
            with visit.begin() as session:
                job = jobs.draft(
                    session,
                    visit.caller,
                    visit.settings,
                    name=name,
                    spec=spec,
                    files={role: file.id for role, file in form.kept.items()},
                    offers=form.all("offers"),
                    mode=mode,
                )
                jobs.check(
                    session, visit.settings, job
                )  # a draft cannot be changed here: what is wrong is said at once
                job_id = job.id
    return _new(visit, form, Form(), 422) if form.faulty else visit.see(f"/jobs/{job_id}", NEXT)


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

    return _done(visit, job_id, lambda session: jobs.stop(session, visit.caller, visit.settings, job_id), told)


@router.post("/{job_id}/withdraw")
def withdraw(visit: Visiting, _: Posted, job_id: str) -> Response:
    def told(_: Job) -> str:
        return "The job is withdrawn. It has cost nothing."

    return _done(visit, job_id, lambda session: jobs.withdraw(session, visit.caller, job_id), told)
