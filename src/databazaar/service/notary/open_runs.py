"""The runs that a hub has open: one thread at a time for each, and only so many."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from databazaar.service.errors import ConflictError
from databazaar.service.notary.run import NotarisedRun


@dataclass
class _OpenRun:
    lock: threading.Lock = field(default_factory=threading.Lock)
    run: NotarisedRun | None = None
    users: int = 0

    def let_go(self) -> None:
        with self.lock:
            if self.run is not None:
                self.run.dispose()
                self.run = None


class OpenRuns:
    """At most about `most` open runs; the least recently used is closed first, and reopened from its ledger."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, _OpenRun] = OrderedDict()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        """The ids of their jobs."""
        return iter(list(self._held))

    @contextmanager
    def of(self, job_id: str, opened: Callable[[], NotarisedRun]) -> Iterator[NotarisedRun]:
        """The run of this job, which is `opened` where it is not at hand."""
        with self._lock:
            held = self._held.setdefault(job_id, _OpenRun())
            held.users += 1
            self._held.move_to_end(job_id)
            idle = [name for name, one in self._held.items() if not one.users]
            spare = [self._held.pop(name) for name in idle[: max(0, len(self._held) - self._most)]]
        for one in spare:
            one.let_go()
        try:
            with held.lock:
                if self._held.get(job_id) is not held:
                    raise ConflictError("the run has just been closed: look at the job again")
                if held.run is None:
                    held.run = opened()
                yield held.run
        finally:
            with self._lock:
                held.users -= 1

    def drop(self, job_id: str) -> None:
        """Lets go of a run, so that others can have its folder; waits for its holder."""
        with self._lock:
            held = self._held.pop(job_id, None)
        if held is not None:
            held.let_go()
