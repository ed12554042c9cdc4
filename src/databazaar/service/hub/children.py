"""The hub's processes: forked from a server that has everything loaded already, in a tenth of a second each."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

from databazaar.service.errors import TooManyError
from databazaar.service.settings import Settings

LOADED = [
    "databazaar.config.check",
    "databazaar.config.play",
    "databazaar.engines.stacks",
    "databazaar.reports.run_page",
    "databazaar.runs.close",
    "databazaar.service.hub.runner",
    "databazaar.service.hub.settlement",
    "databazaar.service.submission",
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


class Children(dict[str, Child]):
    """Those of one hub that do the same work, by which they are named; each by its job."""

    def __init__(self, name: str, settings: Settings, work: Work) -> None:
        super().__init__()
        self._name, self._settings, self._work = name, settings, work

    @property
    def sentinels(self) -> list[int]:
        return [child.process.sentinel for child in self.values()]

    def start(self, job_id: str, rounds: int = 0) -> None:
        process = start(self._work, (self._settings, job_id), f"{self._name}-{job_id}")
        self[job_id] = Child(job_id, process, rounds)

    def over(self) -> list[Child]:
        """Those that have ended; each stays until it is forgotten."""
        with _processes:
            return [child for child in self.values() if not child.process.is_alive()]

    def forget(self, child: Child) -> None:
        child.process.close()
        del self[child.job_id]

    def older_than(self, seconds: float) -> list[Child]:
        """Those that were started so long ago, the oldest first."""
        return [child for child in self.values() if time.monotonic() - child.since > seconds]

    def kill(self, *jobs: str) -> list[str]:
        """Ends the processes of these jobs, or all, at once: their work can be done again. Returns the jobs."""
        ended = list(jobs) or list(self)
        for child in [self[job_id] for job_id in ended]:
            child.process.kill()
            child.process.join()
            self.forget(child)
        return ended


MOST_WAITING = 16
"""Who waits keeps a thread of the hub: so not many do. The others ask again."""


class Turns:
    """Organisations share `most` places by turns: the next is the one that was served the longest time ago. Each may
    have or wait for `of_one`; `full` and `full_of_one` are said to those who are refused."""

    def __init__(self, most: int, of_one: int, full: str, full_of_one: str) -> None:
        self._most, self._of_one, self._full, self._full_of_one = most, of_one, full, full_of_one
        self._changed = threading.Condition()
        self._numbers = count(1)
        self._busy: Counter[str] = Counter()
        self._waiting: dict[int, str] = {}
        self._served: dict[str, int] = {}

    @contextmanager
    def turn(self, whose: str, patience: float) -> Iterator[None]:
        """Waits until it is this organisation's turn, `patience` seconds at the most, and has it until the end."""
        with self._changed:
            self._wait(whose, patience)
            self._busy[whose] += 1
            self._served[whose] = next(self._numbers)
        try:
            yield
        finally:
            with self._changed:
                self._busy[whose] -= 1
                self._changed.notify_all()

    def _wait(self, whose: str, patience: float) -> None:
        if self._busy[whose] + Counter(self._waiting.values())[whose] >= self._of_one:
            raise TooManyError(self._full_of_one)
        if len(self._waiting) >= MOST_WAITING:
            raise TooManyError(self._full)
        mine = next(self._numbers)
        self._waiting[mine] = whose
        try:
            if not self._changed.wait_for(lambda: self._busy.total() < self._most and self._next() == mine, patience):
                raise TooManyError(self._full)
        finally:
            del self._waiting[mine]
            self._changed.notify_all()  # the next one may be let in too

    def _next(self) -> int:
        return min(self._waiting, key=lambda one: (self._served.get(self._waiting[one], 0), one))
