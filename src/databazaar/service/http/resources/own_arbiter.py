"""For a consumer that runs its own arbiter: its hold-out stays with it, and the hub is the notary of its run.

What is sent here is its own key: the same entries or the same question again do nothing twice.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from databazaar.client import shapes
from databazaar.service.http.calls import Reading
from databazaar.service.http.context import Call
from databazaar.service.http.routes import Body, Routes
from databazaar.service.http.security_limits import takes_messages
from databazaar.service.notary.commands import Notaries
from databazaar.service.notary.run import MOST_ENTRIES, Line, entries_of

routes = Routes("own arbiter")
BYTES = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}
MOST_ASKED = 1000
_ENTRIES = {"type": "object", "required": ["entries"], "properties": {"entries": {"type": "array", "items": {}}}}
ENTRIES = {"requestBody": {"required": True, "content": {"application/json": {"schema": _ENTRIES}}}}


class SendEntries(Body):
    """Entries of the run's ledger in order: seq, kind, round, draw, provider, amount, body, hash."""

    entries: list[Line] = Field(min_length=1, max_length=MOST_ENTRIES)


class Connected(BaseModel):
    connected: list[str]


ELSEWHERE = "this hub shows the market and runs no jobs: use the address of the one that does, which its operator knows"


def _notaries(call: Call) -> Notaries:
    if call.settings.runners == 0:
        raise HTTPException(421, ELSEWHERE)  # two notaries would both write the same run
    return call.web.notaries


@routes.api.get("/jobs/{job_id}/market", response_model=shapes.OwnMarket)
def own_market(job_id: str, call: Reading) -> shapes.OwnMarket:
    """What was agreed for the job."""
    return _notaries(call).market(call.caller, job_id)


@routes.api.get("/jobs/{job_id}/entries", response_model=shapes.RunStatus)
def standing(job_id: str, call: Reading) -> shapes.RunStatus:
    """What the hub has of the run."""
    return _notaries(call).standing(call.caller, job_id)


async def _sent(request: Request, call: Reading) -> SendEntries:
    """The body, which may be long: it is read once the caller is known."""
    try:
        return SendEntries.model_validate_json(await request.body())
    except ValidationError as fault:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in fault.errors()]) from None


@routes.api.post("/jobs/{job_id}/entries", response_model=shapes.RunStatus, openapi_extra=ENTRIES)
@takes_messages
def send_entries(job_id: str, asked: Annotated[SendEntries, Depends(_sent)], call: Reading) -> shapes.RunStatus:
    """Reports what the run's ledger has written; it is kept for good once this is answered. What does not follow from
    what is there is refused with 422, and a gap or another history with 409."""
    found = _notaries(call).take(call.caller, job_id, entries_of(asked.entries))
    if found.closed:
        call.web.wake()
    return found


@routes.api.post("/jobs/{job_id}/ask", response_class=Response, openapi_extra=BYTES)
@takes_messages
async def ask(
    job_id: str,
    request: Request,
    call: Reading,
    provider: Annotated[list[str], Query(min_length=1, max_length=MOST_ASKED)],
    timeout: Annotated[float, Query(gt=0, le=300)] = 30.0,
) -> Response:
    """Asks providers of the job with a message of the federation, and gives their replies, each as it is."""
    payload = await request.body()
    answer = await run_in_threadpool(_notaries(call).ask, call.caller, job_id, provider, payload, timeout)
    return Response(answer, media_type="application/octet-stream")


@routes.api.get("/jobs/{job_id}/connected", response_model=Connected)
def connected(job_id: str, call: Reading) -> Connected:
    """Which of the job's providers could be asked now."""
    return Connected(connected=_notaries(call).connected(call.caller, job_id))
