"""The hub's processes: forked from a server that has everything loaded already, in a tenth of a second each."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from databazaar.service.settings import Settings

LOADED = [
    "databazaar.config.check",
    "databazaar.config.playing",
    "databazaar.engines.stacked",
    "databazaar.engines.stacked",
    "databazaar.reports.written",
    "databazaar.runs.closing",
    "databazaar.service.hub.runner",
    "databazaar.service.hub.settler",
    "databazaar.service.notary.answering",
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
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(LOADED)
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

    def get_ready(self) -> None:
        """Starts the server that forks them, so that it has loaded everything when the first is wanted."""
        forkserver.ensure_running()

    def start(self, job_id: str, rounds: int = 0) -> None:
        name, args = f"{self._name}-{job_id}", (self._settings, job_id)
        process = self._context.Process(target=self._work, args=args, name=name, daemon=True)
        process.start()
        self._alive[job_id] = Child(job_id, process, rounds)

    def over(self) -> list[Child]:
        """Those that have ended; each stays until it is forgotten."""
        return [child for child in self._alive.values() if not child.process.is_alive()]

    def forget(self, child: Child) -> None:
        child.process.close()
        del self._alive[child.job_id]

    def older_than(self, seconds: float) -> list[Child]:
        """Those that were started so long ago, the oldest first."""
        return [child for child in self._alive.values() if time.monotonic() - child.since > seconds]

    def kill(self, *jobs: str) -> list[str]:
        """Ends those of these jobs, or all, at once and wherever they are: whatever they do can be done again. The jobs
        that they were for."""
        ended = list(jobs) or self.jobs
        for child in [self._alive[job_id] for job_id in ended]:
            child.process.kill()
            child.process.join()
            self.forget(child)
        return ended


def wait_for(children: list[Children], bell: int, seconds: float) -> None:
    """Until one of them ends, or the bell rings, or the time is over."""
    wait([bell, *(sentinel for some in children for sentinel in some.sentinels)], timeout=seconds)
