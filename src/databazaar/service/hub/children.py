"""The hub's processes: forked from a server that has everything loaded already, in a tenth of a second each."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

from databazaar.service.settings import Settings

LOADED = [
    "databazaar.config.check",
    "databazaar.config.play",
    "databazaar.engines.stacked",
    "databazaar.reports.written",
    "databazaar.runs.close",
    "databazaar.service.hub.runner",
    "databazaar.service.hub.settlement",
    "databazaar.service.jobs.submission",
    "databazaar.service.notary.responder",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "pyarrow.parquet",
    "safetensors.numpy",
    "sqlalchemy.dialects.sqlite",
    "databazaar.service.hub.frozen",
]
"""What the server imports before it forks, torch among it. It computes nothing, so that it has no threads to lose."""

Work = Callable[[Settings, str], None]
"""What a process does for a job; it ends with an exit code."""
_processes = threading.Lock()
"""multiprocessing looks at all children when it starts one; two threads that look at once can spoil an exit code."""


def get_ready() -> None:
    """Starts the server that forks, so that it has loaded everything when the first process is wanted."""
    _context()
    forkserver.ensure_running()


def start(work: Callable[..., None], given: tuple[Any, ...], name: str) -> BaseProcess:
    """A process that does this work, forked from the server: the hub itself has threads, and is never forked."""
    process = _context().Process(target=work, args=given, name=name, daemon=True)
    with _processes:
        process.start()
    return process


def _context() -> ForkServerContext:
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own maps a gigabyte that it may never use
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context


@dataclass(frozen=True)
class Child:
    """A process that works for a job. `rounds` had been played when it was started, at `since` on the clock."""

    job_id: str
    process: BaseProcess
    rounds: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def code(self) -> int:
        """How it has ended: its exit code, or minus the signal that killed it."""
        self.process.join()
        return 1 if self.process.exitcode is None else self.process.exitcode


class Children:
    """Those of one hub that do the same work, by which they are named."""

    def __init__(self, name: str, settings: Settings, work: Work) -> None:
        self._name, self._settings, self._work = name, settings, work
        self._alive: dict[str, Child] = {}

    def __len__(self) -> int:
        return len(self._alive)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._alive

    @property
    def jobs(self) -> list[str]:
        return list(self._alive)

    @property
    def sentinels(self) -> list[int]:
        return [child.process.sentinel for child in self._alive.values()]

    def start(self, job_id: str, rounds: int = 0) -> None:
        process = start(self._work, (self._settings, job_id), f"{self._name}-{job_id}")
        self._alive[job_id] = Child(job_id, process, rounds)

    def over(self) -> list[Child]:
        """Those that have ended; each stays until it is forgotten."""
        with _processes:
            return [child for child in self._alive.values() if not child.process.is_alive()]

    def forget(self, child: Child) -> None:
        child.process.close()
        del self._alive[child.job_id]

    def older_than(self, seconds: float) -> list[Child]:
        """Those that were started so long ago, the oldest first."""
        return [child for child in self._alive.values() if time.monotonic() - child.since > seconds]

    def kill(self, *jobs: str) -> list[str]:
        """Ends the processes of these jobs, or all, at once: their work can be done again. Returns the jobs."""
        ended = list(jobs) or self.jobs
        for child in [self._alive[job_id] for job_id in ended]:
            child.process.kill()
            child.process.join()
            self.forget(child)
        return ended


def wait_for(children: list[Children], bell: int, seconds: float) -> None:
    """Until one of them ends, or the bell rings, or the time is over."""
    wait([bell, *(sentinel for some in children for sentinel in some.sentinels)], timeout=seconds)
