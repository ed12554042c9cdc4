"""Following jobs as they run: one reader for all, however many look on. Viewers wait for it and hold nothing."""

from __future__ import annotations

import asyncio
import bisect
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from databazaar.service.errors import TooManyError
from databazaar.service.hub import progress
from databazaar.service.settings import Settings
from databazaar.service.states import OVER

TICK, STATES_EVERY = 0.15, 0.6
MOST_VIEWERS, MOST_OF_ONE = 2000, 500
"""At once, and of one organisation: none takes all places."""
TOLD = ("state", "reason", "stop_requested", "attempts", "budget", "paid", "fee", "refunded")
"""What viewers are told of the job's row when one of these changes."""


@dataclass
class Tailed:
    """What is known of one job: its rounds as text, in order, and its state. It is changed in the loop's thread."""

    job_id: str
    numbers: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    state: dict[str, Any] | None = None
    over: bool = False
    viewers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> int:
        return self.numbers[-1] if self.numbers else 0

    def after(self, number: int, most: int) -> tuple[int, list[str]]:
        """The number of the last and the texts of at most so many rounds after this one."""
        begin = bisect.bisect_right(self.numbers, number)
        end = min(len(self.numbers), begin + most)
        return (self.numbers[end - 1] if end > begin else number), self.texts[begin:end]

    def take(self, rounds: Iterable[dict[str, Any]], state: dict[str, Any] | None) -> None:
        """Adds what was read, and wakes whoever waits if any of it is new."""
        before = len(self.numbers), self.state
        for one in rounds:
            if one["round"] > self.last:
                self.numbers.append(one["round"])
                self.texts.append(
                    json.dumps({name: _plain(value) for name, value in one.items()}, separators=(",", ":"))
                )
        if state is not None:
            self.state, self.over = state, state["state"] in OVER
        if (len(self.numbers), self.state) != before:
            awake, self.changed = self.changed, asyncio.Event()
            awake.set()


class Tailers:
    """All jobs that somebody looks at. What nobody looks at is not read."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings, self.database = settings, database
        self._tailed: dict[str, Tailed] = {}
        self._of_one: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._states_at = 0.0

    @property
    def viewers(self) -> int:
        return sum(tailed.viewers for tailed in self._tailed.values())

    @asynccontextmanager
    async def following(self, job_id: str, whose: str) -> AsyncIterator[Tailed]:
        """The job, read at least once, for as long as the viewer looks, who is of the organisation `whose`."""
        if self.viewers >= MOST_VIEWERS or self._of_one[whose] >= MOST_OF_ONE:
            raise TooManyError("too many look on at once: try again later")
        tailed = self._tailed.setdefault(job_id, Tailed(job_id))
        tailed.viewers += 1
        self._of_one[whose] += 1
        try:
            if tailed.state is None:
                await self._read([tailed], states=True)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._follow())
            yield tailed
        finally:
            tailed.viewers -= 1
            self._of_one[whose] -= 1
            if not tailed.viewers:
                self._tailed.pop(job_id, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while self._tailed:
            await asyncio.sleep(TICK)
            states = time.monotonic() - self._states_at >= STATES_EVERY
            with suppress(OSError):
                await self._read([one for one in self._tailed.values() if not one.over], states)

    async def _read(self, tailed: list[Tailed], states: bool) -> None:
        """One thread reads for all, the states first: the rounds of a job that is over are then all there."""
        if states:
            self._states_at = time.monotonic()
        found = await run_in_threadpool(self._found, [(one.job_id, one.last) for one in tailed], states)
        for one, (rounds, state) in zip(tailed, found, strict=True):
            one.take(rounds, state)

    def _found(
        self, wanted: list[tuple[str, int]], states: bool
    ) -> list[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        told = self._states([job_id for job_id, _ in wanted]) if states and wanted else {}
        return [(progress.rounds(self.settings, job_id, last), told.get(job_id)) for job_id, last in wanted]

    def _states(self, job_ids: list[str]) -> dict[str, dict[str, Any]]:
        columns = [getattr(Job, name) for name in TOLD]
        with self.database.read() as session:
            rows = session.execute(select(Job.id, *columns).where(Job.id.in_(job_ids))).all()
        return {row[0]: dict(zip(TOLD, row[1:], strict=True)) for row in rows}


def _plain(value: Any) -> Any:
    """Browsers read no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
