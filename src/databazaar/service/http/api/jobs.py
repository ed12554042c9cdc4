"""A consumer's jobs, from the draft to the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import files, jobs
from databazaar.service.database.tables import Job
from databazaar.service.errors import InvalidError
from databazaar.service.http.api.calls import Asking, Call, Doing, Sending, text_of
from databazaar.service.http.api.job_shapes import ChangeJob, DraftJob, Events, Rounds
from databazaar.service.http.api.shapes import After, Limit, Page, paged
from databazaar.service.http.security_bodies import takes_uploads
from databazaar.service.hub import progress

router = APIRouter(prefix="/v1", tags=["jobs"])
MOST_ROUNDS = 10_000
MARKET_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["market"],
                    "properties": {
                        "market": {"type": "string", "description": "The text of market.toml."},
                        "mode": {"type": "string", "enum": ["hosted", "own"]},
                        "file": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "The files that market.toml names, under the names that it has for them.",
                        },
                    },
                }
            }
        },
    }
}


@router.get("/jobs", response_model=Page[shapes.JobSummary])
def own_jobs(
    call: Asking,
    everybodys: Annotated[bool, Query(description="All of the market, for the operator.")] = False,
    after: After = None,
    limit: Limit = 100,
) -> Page[shapes.JobSummary]:
    """The caller's jobs, the newest first."""
    with call.read() as session:
        found = (jobs.all_jobs if everybodys else jobs.own_jobs)(session, call.caller)
        return paged(shapes.JobSummary, found, after, limit)


@router.post("/jobs", response_model=shapes.Job, status_code=201)
def draft_job(asked: DraftJob, call: Doing) -> Response:
    """A new job, which costs nothing yet."""
    return _done(call, lambda session: jobs.draft(session, call.caller, call.settings, **dict(asked)), 201)


@router.post("/jobs/from-market", response_model=shapes.Job, status_code=201, openapi_extra=MARKET_FORM)
@takes_uploads
def draft_from_market(call: Sending) -> Response:
    """A new job from a market.toml, whose providers name offers by their slugs, and the files that it names."""

    def deed(session: Session) -> Job:
        posted = jobs.from_market_toml(text_of(call.form, "market"))
        mode = text_of(call.form, "mode", "hosted")
        kept = {} if mode == "own" else _kept(session, call, posted.files)
        return jobs.draft(
            session,
            call.caller,
            call.settings,
            name=posted.name,
            spec=posted.spec,
            files=kept,
            offers=posted.offers,
            mode=mode,
        )

    return _done(call, deed, 201, late=True)


@router.get("/jobs/{job_id}", response_model=shapes.Job)
def job(job_id: str, call: Asking) -> shapes.Job:
    """One job, with what was asked for."""
    with call.read() as session:
        return from_row(shapes.Job, jobs.own_job(session, call.caller, job_id))


@router.post("/jobs/{job_id}/change", response_model=shapes.Job)
def change_job(job_id: str, asked: ChangeJob, call: Doing) -> Response:
    """Changes a draft."""
    return _done(call, lambda session: jobs.change(session, call.caller, call.settings, job_id, **dict(asked)))


@router.post("/jobs/{job_id}/submit", response_model=shapes.Job)
def submit_job(job_id: str, call: Doing) -> Response:
    """Asks every chosen offer's provider for a contract."""
    with call.read() as session:
        jobs.look(session, call.caller, call.settings, job_id)
    return _done(call, lambda session: jobs.submit(session, call.caller, call.settings, job_id))


@router.get("/jobs/{job_id}/quote", response_model=shapes.Quote)
def quote_job(job_id: str, call: Asking) -> shapes.Quote:
    """What the job will cost, how many rounds it can have, who can be asked, how long it will wait."""
    with call.read() as session:
        return jobs.quote(session, call.caller, call.settings, job_id).shown()


@router.post("/jobs/{job_id}/fund", response_model=shapes.Job)
def fund_job(job_id: str, call: Doing) -> Response:
    """Locks the budget and the fee on it. A hosted job is queued at once."""
    response = _done(call, lambda session: jobs.fund(session, call.caller, job_id))
    call.web.wake()
    return response


@router.post("/jobs/{job_id}/stop", response_model=shapes.Job)
def stop_job(job_id: str, call: Doing) -> Response:
    """Ends the job after the round under way; the rest of the money comes back."""
    response = _done(call, lambda session: jobs.stop(session, call.caller, call.settings, job_id))
    call.web.wake()
    return response


@router.post("/jobs/{job_id}/withdraw", response_model=shapes.Job)
def withdraw_job(job_id: str, call: Doing) -> Response:
    """Gives up a job that is not funded yet."""
    return _done(call, lambda session: jobs.withdraw(session, call.caller, job_id))


@router.get("/jobs/{job_id}/events", response_model=Events)
def job_events(job_id: str, call: Asking, after: Annotated[int, Query(ge=0)] = 0) -> Events:
    """What has happened to the job, from the event after number `after` on."""
    with call.read() as session:
        found = jobs.events_of(session, call.caller, job_id, after)
        return Events(items=[from_row(shapes.Event, one) for one in found])


@router.get("/jobs/{job_id}/rounds", response_model=Rounds)
def job_rounds(
    job_id: str,
    call: Asking,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ROUNDS)] = 1000,
) -> Rounds:
    """The job's rounds from the one after `after` on."""
    with call.read() as session:
        jobs.own_job(session, call.caller, job_id)
    return Rounds(items=progress.rounds(call.settings, job_id, after, limit))


def _done(call: Call, deed: Callable[[Session], Job], status: int = 200, **how: Any) -> Response:
    return call.do(shapes.Job, deed, status, **how)


def _kept(session: Session, call: Call, wanted: dict[str, str]) -> dict[str, str]:
    """Keeps the files that market.toml names; the ids by role."""
    sent = _sent(call.form)
    kept: dict[str, str] = {}
    for role, path in wanted.items():
        part = sent.get(files.shown_name(path))
        if part is None:
            raise InvalidError(f"market.toml names {path[:200]!r} as {role}, and it was not sent: send that file too")
        part.file.seek(0)
        kept[role] = files.keep(session, call.caller, call.settings, part.filename or "", part.file).id
    return kept


def _sent(form: FormData | None) -> dict[str, UploadFile]:
    parts = form.getlist("file") if form is not None else []
    return {files.shown_name(part.filename or ""): part for part in parts if isinstance(part, UploadFile)}
