"""People who watch jobs at a hub: `python service_viewers.py ASKED`, as JSON; ends when its standard input does.

Each viewer is one open stream of events, read as plainly as can be: on a machine with two cores, what they cost is
taken from the jobs. They spread over the jobs that are not over, and take another when theirs is. Prints a line once
each of them has an open stream, and at the end, as JSON, the milliseconds from when a runner had written a round to
when a viewer had it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

OVER = frozenset({"settled", "refunded", "failed"})
LOOK_EVERY = 1.0
"""Seconds after which they ask which jobs are not over: one call of each consumer, beside those that are measured."""


@dataclass
class Watching:
    """What all viewers know together. `jobs` are (id, token); `unfinished` those of them that are not over."""

    address: str
    jobs: dict[str, str]
    count: int
    unfinished: list[str] = field(default_factory=list)
    viewers: Counter[str] = field(default_factory=Counter)
    ways: list[float] = field(default_factory=list)
    streams: int = 0
    events: int = 0
    rounds: int = 0
    lost: int = 0

    async def opened(self, path: str, token: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = urlsplit(self.address).netloc
        reader, writer = await asyncio.open_connection(*host.split(":"), limit=2**22)
        asked = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        writer.write(asked.encode())
        return reader, writer

    async def look(self) -> None:
        """Finds out which jobs are not over, as a list in a browser would."""
        while True:
            found: list[str] = []
            for token in set(self.jobs.values()):
                reader, writer = await self.opened("/v1/jobs?limit=500", token)
                body = (await reader.read()).partition(b"\r\n\r\n")[2]
                writer.close()
                items = json.loads(body)["items"]
                found += [job["id"] for job in items if job["id"] in self.jobs and job["state"] not in OVER]
            self.unfinished = found
            await asyncio.sleep(LOOK_EVERY)

    async def view(self) -> None:
        """One viewer: follows the job that the fewest look at, to its end, and then another."""
        while True:
            job = min(self.unfinished, key=lambda one: self.viewers[one], default=None)
            if job is None:
                await asyncio.sleep(LOOK_EVERY / 4)
                continue
            self.viewers[job] += 1
            try:
                await self._follow(job)
            except (OSError, asyncio.IncompleteReadError):
                self.lost += 1
            finally:
                self.viewers[job] -= 1
            with suppress(ValueError):
                self.unfinished.remove(job)

    async def _follow(self, job: str) -> None:
        opened = time.time()
        reader, writer = await self.opened(f"/v1/jobs/{job}/live", self.jobs[job])
        try:
            if await reader.readline():
                self._note_stream()
            while line := await reader.readline():
                if line.startswith(b"data:"):
                    now = time.time()
                    self.events += 1
                    told = json.loads(line[5:])
                    if told.get("state") in OVER:
                        return
                    self._note(told.get("rounds", []), now, opened)
        finally:
            writer.close()

    def _note_stream(self) -> None:
        self.streams += 1
        if self.streams == self.count:
            print("watching", flush=True)

    def _note(self, rounds: list[dict[str, Any]], now: float, opened: float) -> None:
        """Rounds from before the viewer came are no news."""
        self.rounds += len(rounds)
        self.ways += [1e3 * (now - one["at"]) for one in rounds if one.get("at", 0.0) > opened]


async def watch(address: str, jobs: dict[str, str], viewers: int) -> dict[str, Any]:
    watching = Watching(address, jobs, viewers)
    tasks = [asyncio.create_task(work) for work in (watching.look(), *(watching.view() for _ in range(viewers)))]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    seconds = time.process_time()
    counts = {"events": watching.events, "rounds": watching.rounds, "lost": watching.lost, "cpu_s": seconds}
    return {"ways_ms": watching.ways, **counts}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(watch(**json.loads(sys.argv[1])))))
