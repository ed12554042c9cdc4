"""A job as it happens, as server-sent events: `rounds` in batches, whose id is the last round's number, and `state`.

A viewer that comes back with Last-Event-ID goes on after that round. The stream ends when the job is over, and when
the token or the session that opened it holds no longer. A viewer that comes back after the end gets 204, and stops.

The broadcaster reads for all viewers: they wait for it and hold nothing. What is new of a job is made into an event
once, and all viewers get the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Header, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import Send

from databazaar.service import jobs
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from databazaar.service.errors import ServiceError, TooManyError
from databazaar.service.http.calls import ApiCall, Reading
from databazaar.service.http.routes import Routes
from databazaar.service.http.security import look_up
from databazaar.service.hub import progress
from databazaar.service.lifecycle import OVER
from databazaar.service.settings import Settings

routes = Routes("jobs")
TICK, LONGEST_TICK, STATES_EVERY = 0.15, 0.5, 0.6
A_VIEWER_MORE = 0.002
"""Seconds that all wait longer for each who looks on: the more there are, the more an event costs."""
PULSE = 1.0
"""Seconds after which viewers are woken although nothing is new."""
BATCH = 500
"""Rounds in one event, at most."""
MOST_VIEWERS, MOST_OF_ONE = 2000, 500
"""At once, and of one organisation: none takes all places."""
TOLD = ("state", "reason", "reason_code", "stopped_by", "attempts", "budget", "paid", "fee", "refunded")
"""What viewers are told of the job's row when one of these changes."""
HEARTBEAT, PING = 15.0, b": ping\n\n"
"""Seconds after which a stream says that it is alive."""
SEND_PATIENCE = 30.0
"""Seconds that a viewer has to take what was sent."""
CHECK_EVERY = 30.0
"""Seconds after which a viewer must still be allowed to look."""
Since = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, description="The last round that the viewer has.")]


def pause(viewers: int) -> float:
    """How long the reader waits when so many look on.

    >>> pause(1), pause(100), pause(2000)
    (0.152, 0.35, 0.5)
    """
    return round(min(LONGEST_TICK, TICK + A_VIEWER_MORE * viewers), 3)


@dataclass
class Feed:
    """What is known of one job: its rounds as text, in order, and its state. It is changed in the loop's thread."""

    job_id: str
    texts: list[str] = field(default_factory=list)
    told: bytes = b""
    over: bool = False
    viewers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _made: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return len(self.texts)

    def after(self, number: int) -> tuple[int, bytes]:
        """The number of the last round that the event with those after this one has, and the event; it is empty where
        there are none. Nearly all who ask have the same rounds, so it is made once."""
        if number >= self.last:
            return number, b""
        if number not in self._made:
            last = min(self.last, number + BATCH)
            self._made[number] = last, event("rounds", f'{{"rounds":[{",".join(self.texts[number:last])}]}}', last)
        return self._made[number]

    def take(self, rounds: Iterable[dict[str, Any]], state: dict[str, Any] | None) -> None:
        """Adds what was read, and wakes the waiting viewers if any of it is new."""
        before = self.last, self.told
        for one in rounds:
            if one["round"] > self.last:
                self.texts.append(to_json(one, inf_nan_mode="null").decode())  # browsers read no infinity
        if state is not None:
            self.told, self.over = event("state", json.dumps(state)), state["state"] in OVER
        if (self.last, self.told) != before:
            self._made.clear()
            self.wake()

    def wake(self) -> None:
        awake, self.changed = self.changed, asyncio.Event()
        awake.set()


def event(name: str, data: str, number: int | None = None) -> bytes:
    """A server-sent event, whose data is one line.

    >>> event("rounds", "{}", 3)
    b'id: 3\\nevent: rounds\\ndata: {}\\n\\n'
    """
    named = "" if number is None else f"id: {number}\n"
    return f"{named}event: {name}\ndata: {data}\n\n".encode()


class Broadcaster:
    """All jobs that somebody looks at. What nobody looks at is not read. Streams end when `ending` says so."""

    ending: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings, self.database = settings, database
        self._feeds: dict[str, Feed] = {}
        self._of_one: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._states_at = self._woken_at = 0.0

    @property
    def viewers(self) -> int:
        return sum(feed.viewers for feed in self._feeds.values())

    def refuse_too_many(self, whose: str) -> None:
        if self.viewers >= MOST_VIEWERS or self._of_one[whose] >= MOST_OF_ONE:
            raise TooManyError("too many look on at once: try again later")

    @asynccontextmanager
    async def following(self, job_id: str, whose: str) -> AsyncIterator[Feed]:
        """The job, read at least once, for as long as the viewer looks, who is of the organisation `whose`."""
        self.refuse_too_many(whose)
        feed = self._feeds.setdefault(job_id, Feed(job_id))
        feed.viewers += 1
        self._of_one[whose] += 1
        try:
            async with feed.reading:  # all who come at the same time wait for one reading
                if not feed.told:
                    await self._read([feed], states=True)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._follow())
            yield feed
        finally:
            feed.viewers -= 1
            self._of_one[whose] -= 1
            if not feed.viewers:
                self._feeds.pop(job_id, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while self._feeds:
            await asyncio.sleep(pause(self.viewers))
            now = time.monotonic()
            with suppress(OSError, SQLAlchemyError):  # it is asked again
                await self._read(
                    [one for one in self._feeds.values() if not one.over], now - self._states_at >= STATES_EVERY
                )
            if now - self._woken_at >= PULSE or self.ending():
                self._woken_at = now
                for one in self._feeds.values():
                    one.wake()

    async def _read(self, feed: list[Feed], states: bool) -> None:
        """One thread reads for all, the states first: the rounds of a job that is over are then all there."""
        if states:
            self._states_at = time.monotonic()
        found = await run_in_threadpool(self._found, [(one.job_id, one.last) for one in feed], states)
        for one, (rounds, state) in zip(feed, found, strict=True):
            one.take(rounds, state)

    def _found(
        self, wanted: list[tuple[str, int]], states: bool
    ) -> list[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        told: dict[str, dict[str, Any]] = {}
        if states and wanted:
            query = select(Job.id, *(getattr(Job, name) for name in TOLD)).where(Job.id.in_([one for one, _ in wanted]))
            with self.database.read() as session:
                told = {row["id"]: {name: row[name] for name in TOLD} for row in session.execute(query).mappings()}
        return [(progress.rounds(self.settings, job_id, last), told.get(job_id)) for job_id, last in wanted]


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
        jobs.own_job(session, caller, job_id)
