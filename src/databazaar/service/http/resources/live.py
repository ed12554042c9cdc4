"""A job as it happens, as server-sent events: `rounds` in batches, whose id is the last round's number, and `state`.

A viewer that comes back with Last-Event-ID goes on after that round. The stream ends when the job is over, and when
the token or the session that opened it holds no longer. A viewer that comes back after the end gets 204, and stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Send

from databazaar.service import jobs
from databazaar.service.errors import ServiceError
from databazaar.service.http.broadcaster import Broadcaster
from databazaar.service.http.calls import ApiCall, Reading
from databazaar.service.http.routes import Routes
from databazaar.service.http.security_callers import look_up

routes = Routes("jobs")
HEARTBEAT, PING = 15.0, b": ping\n\n"
"""Seconds after which a stream says that it is alive."""
SEND_PATIENCE = 30.0
"""Seconds that a viewer has to take what was sent."""
CHECK_EVERY = 30.0
"""Seconds after which a viewer must still be allowed to look."""
Since = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, description="The last round that the viewer has.")]


class EventStream(StreamingResponse):
    """Events as they come, until the viewer goes away or takes nothing any more."""

    media_type = "text/event-stream"
    body_iterator: AsyncGenerator[bytes, None]

    def __init__(self, events: AsyncGenerator[bytes, None], status_code: int = 200) -> None:
        super().__init__(events, status_code, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self.body_iterator) as events:
            async for event in events:
                try:
                    async with asyncio.timeout(SEND_PATIENCE):
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                except TimeoutError:
                    return  # the server cuts the line
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@routes.api.get(
    "/jobs/{job_id}/live",
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {}}}, 204: {"description": "The job is over, and all was told."}},
)
async def live(job_id: str, call: Reading, since: Since = None) -> Response:
    """The job's rounds and states as they happen, as server-sent events."""
    await run_in_threadpool(_may_see, call, job_id)
    broadcaster = call.web.broadcaster
    if since is not None:
        async with broadcaster.following(job_id, call.caller.organisation_id) as feed:
            if feed.over and feed.last <= since:
                return Response(status_code=204)
    broadcaster.refuse_too_many(call.caller.organisation_id)
    return EventStream(_events(broadcaster, call, job_id, since or 0))


async def _events(broadcaster: Broadcaster, call: ApiCall, job_id: str, since: int) -> AsyncGenerator[bytes, None]:
    async with broadcaster.following(job_id, call.caller.organisation_id) as feed:
        told, sent_at = b"", time.monotonic()
        check_at = sent_at + CHECK_EVERY
        while not broadcaster.ending():
            changed, over, at = feed.changed, feed.over, time.monotonic()
            since, new = feed.after(since)
            while new:
                sent_at = at
                yield new
                since, new = feed.after(since)
            if feed.told != told:
                told, sent_at = feed.told, at
                yield told
            if over:
                return
            if at - sent_at >= HEARTBEAT:
                sent_at = at
                yield PING
            await changed.wait()
            if time.monotonic() >= check_at:
                try:
                    await run_in_threadpool(_may_see, call, job_id)
                except ServiceError:
                    return
                check_at = time.monotonic() + CHECK_EVERY


def _may_see(call: ApiCall, job_id: str) -> None:
    """With the rights that the token has by now."""
    caller = look_up(call.web, call.credentials)
    with call.read() as session:
        jobs.refuse_others(session, caller, job_id)
