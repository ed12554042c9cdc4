"""What is done to a hub while it is measured, and what is read off it: people's calls, and its processes' memory."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from service_market import Bought

MIB = 2**20
CALLERS = 4
PLACES = {
    "jobs": "/v1/jobs",
    "job": "/v1/jobs/{job}",
    "job's rounds": "/v1/jobs/{job}/rounds",
    "job's events": "/v1/jobs/{job}/events",
    "offers": "/v1/offers",
    "balances": "/v1/balances",
    "statement": "/v1/statement",
}
"""What a consumer's people look at."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """How many, their median, 99th percentile and largest.

    >>> spread([float(value) for value in range(1, 102)])
    {'count': 101, 'p50': 51.0, 'p99': 100.0, 'most': 101.0}
    """
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))]
    figures = {"p50": statistics.median(ordered), "p99": p99, "most": ordered[-1]}
    return {"count": len(ordered), **{name: round(value, 2) for name, value in figures.items()}}


class Callers:
    """Call the hub at a steady rate, whether or not it keeps up: a call that is late counts from when it was due."""

    def __init__(self, address: str, bought: Sequence[Bought], per_second: float) -> None:
        self.address, self.bought = address, bought
        self.took: dict[str, list[float]] = defaultdict(list)
        self.refused = 0
        self._every = CALLERS / per_second
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(place,)) for place in range(CALLERS)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self, place: int) -> None:
        choose = random.Random(place)
        with httpx.Client(base_url=self.address, timeout=60.0) as client:
            client.get("/healthz")  # to make a client takes longer than any call, and is not the hub's work
            due = time.monotonic() + self._every * place / CALLERS
            while not self._over.wait(max(0.0, due - time.monotonic())):
                what, one = choose.choice(list(PLACES)), choose.choice(self.bought)
                headers = {"Authorization": f"Bearer {one.token}"}
                answer = client.get(PLACES[what].format(job=one.job_id), headers=headers)
                self.took[what].append(1e3 * (time.monotonic() - due))
                self.refused += answer.is_error
                due += self._every

    def figures(self) -> dict[str, Any]:
        by_place = {what: spread(self.took[what]) for what in PLACES}
        return {**spread([one for took in self.took.values() for one in took]), "refused": self.refused, "by": by_place}


@contextmanager
def viewers(address: str, bought: Sequence[Bought], count: int) -> Iterator[dict[str, Any]]:
    """So many, in a process of their own, each with an open stream. What they saw is in the dictionary at the end."""
    found: dict[str, Any] = {}
    asked = {"address": address, "jobs": {one.job_id: one.token for one in bought}, "viewers": count}
    command = [sys.executable, str(Path(__file__).with_name("service_viewers.py")), json.dumps(asked)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline(), "the viewers ended before they watched"
            yield found
        finally:
            found.update(json.loads(process.communicate()[0]))
    found["way_ms"] = spread(found.pop("ways_ms"))


class Memory:
    """What a hub's processes hold, looked at now and then: its own, the one that forks, and one for each job.

    USS is what a process has alone; RSS counts what it shares with the one that it was forked from, too.
    """

    def __init__(self, hub: int) -> None:
        self._hub = psutil.Process(hub)
        self.held: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._first: dict[str, int] = {}
        self._loading = self._looked = 0.0

    def loaded(self) -> bool:
        """Whether the process that forks has worked no more since it was last asked: it has loaded everything then."""
        before, self._loading = self._loading, sum(sum(one.cpu_times()[:2]) for one in self._hub.children())
        return 0.0 < self._loading == before

    def look_every(self, seconds: float) -> None:
        if time.monotonic() - self._looked >= seconds:
            self._looked = time.monotonic()
            self.look()

    def look(self) -> None:
        with suppress(psutil.Error):
            self._add("hub", self._hub)
            for process in self._hub.children():
                if "forkserver" in " ".join(process.cmdline()):
                    self._add("forkserver", process)
                    for child in process.children():
                        with suppress(psutil.Error, OSError):
                            self._add(self._kind(child), child)

    def _kind(self, child: psutil.Process) -> str:
        """By the log that it writes to: the first process of a job plays it, the second settles it."""
        log = Path(f"/proc/{child.pid}/fd/1").readlink()
        if log.name != "runner.log":
            return "starting"
        return "runner" if self._first.setdefault(log.parent.name, child.pid) == child.pid else "settler"

    def _add(self, kind: str, process: psutil.Process) -> None:
        memory = process.memory_full_info()
        self.held[kind].append((memory.uss / MIB, memory.rss / MIB))

    def cpu(self) -> float:
        """Seconds that the hub's own process has worked."""
        times = self._hub.cpu_times()
        return float(times.user + times.system)

    def children_cpu(self) -> float:
        """Seconds that the jobs' processes have worked: whoever forked them knows when they are over."""
        times = [process.cpu_times() for process in self._hub.children()]
        return float(sum(one.children_user + one.children_system for one in times))

    def figures(self) -> dict[str, Any]:
        """Largest of each kind, in MiB."""
        held = {kind: tuple(zip(*found, strict=True)) for kind, found in sorted(self.held.items())}
        return {kind: {"uss": round(max(uss), 1), "rss": round(max(rss), 1)} for kind, (uss, rss) in held.items()}
