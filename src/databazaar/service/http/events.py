"""A job as it happens, as server-sent events: `rounds` in batches, whose id is the last round's number, and `state`.

A viewer that comes back with Last-Event-ID goes on after that round. The stream ends when the job is over, and when
the token or the session that opened it holds no longer. Whoever comes back after the end gets 204, and browsers stop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from databazaar.service import jobs
from databazaar.service.errors import ServiceError
from databazaar.service.http.api.calls import Asking, Call
from databazaar.service.http.security_callers import look_up
from databazaar.service.http.tailing import Tailed, Tailers

router = APIRouter(prefix="/v1", tags=["jobs"])
BATCH, HEARTBEAT, SEND_PATIENCE = 500, 15, 30
CHECK_EVERY = 30.0
"""Seconds after which a viewer must still be allowed to look."""
Since = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, description="The last round that the viewer has.")]


@router.get(
    "/jobs/{job_id}/live",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {}}}, 204: {"description": "The job is over, and all was told."}},
)
async def live(job_id: str, call: Asking, since: Since = None) -> Response:
    """The job's rounds and states as they happen, as server-sent events."""
    await run_in_threadpool(_may_see, call, job_id)
    tailers = call.web.tailers
    async with tailers.following(job_id, call.caller.organisation_id) as tailed:
        if since is not None and tailed.over and tailed.last <= since:
            return Response(status_code=204)
    return EventSourceResponse(_events(tailers, call, job_id, since or 0), ping=HEARTBEAT, send_timeout=SEND_PATIENCE)


async def _events(tailers: Tailers, call: Call, job_id: str, since: int) -> AsyncIterator[dict[str, Any]]:
    async with tailers.following(job_id, call.caller.organisation_id) as tailed:
        told, check_at = None, time.monotonic() + CHECK_EVERY
        while True:
            changed = tailed.changed
            over = tailed.over
            async for event in _new_rounds(tailed, since):
                since = int(event["id"])
                yield event
            if tailed.state != told:
                told = tailed.state
                yield {"event": "state", "data": json.dumps(told)}
            if over:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.0, check_at - time.monotonic()))
            if time.monotonic() >= check_at:
                try:
                    await run_in_threadpool(_may_still_see, call, job_id)
                except ServiceError:
                    return
                check_at = time.monotonic() + CHECK_EVERY


async def _new_rounds(tailed: Tailed, since: int) -> AsyncIterator[dict[str, Any]]:
    while True:
        since, texts = tailed.after(since, BATCH)
        if not texts:
            return
        yield {"event": "rounds", "id": str(since), "data": f'{{"rounds":[{",".join(texts)}]}}'}


def _may_see(call: Call, job_id: str) -> None:
    with call.read() as session:
        jobs.own_job(session, call.caller, job_id)


def _may_still_see(call: Call, job_id: str) -> None:
    """With the rights that the token has by now."""
    caller = look_up(call.web, call.credentials)
    with call.read() as session:
        jobs.own_job(session, caller, job_id)
