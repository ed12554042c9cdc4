"""Workers of a Ray cluster that are given calls one at a time, and that are replaced when they die.

A worker that dies is no answer: its call goes to another. Ray's own restarts are not used, because they lose the
arguments that a worker was made with once these have left the object store (ray-project/ray#53727).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from databazaar.engines.ray_cluster import Cluster, LostCluster, ray_module
from databazaar.errors import BazaarError

MOST_DEATHS = 5
"""A call that so many workers have died of, or a worker that cannot be started so many times on end, ends the run."""
LOOK = 1.0
"""Seconds between two looks at whether the cluster is still there."""


@dataclass(frozen=True, eq=False)
class Shared:
    """An argument of several calls, which is sent to the cluster once."""

    value: Any


@dataclass(frozen=True)
class Call:
    """A method of the worker, and its arguments."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(eq=False)
class _Crew:
    """The workers of one generation of the cluster, what each is doing, and what was sent to it."""

    generation: int
    most: int
    idle: list[Any] = field(default_factory=list)
    running: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    starting: dict[Any, tuple[Any, float]] = field(default_factory=dict)
    sent: dict[Shared, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.idle) + len(self.running) + len(self.starting)


def _nobody() -> _Crew:
    return _Crew(0, 0)


class WorkerPool:
    """At most `most` workers (or one for every processor of the cluster), as many as there are calls for.

    Each is a `worker` made with `work`; `welcome` is told what it answers to `versions`, and may refuse it.
    """

    def __init__(
        self,
        cluster: Cluster,
        worker: type,
        work: Any,
        most: int | None,
        welcome: Callable[[Any], None],
    ) -> None:
        self._cluster = cluster
        self._class, self._work = worker, work
        self._most = most
        self._welcome = welcome
        self._crew = _nobody()
        self._failed_starts = 0

    def map(self, calls: Sequence[Call], take: Callable[[int, Any], None]) -> None:
        """Has every call answered; `take` gets its place and the answer, once each, in any order."""
        waiting = deque(range(len(calls)))
        deaths: Counter[int] = Counter()
        while waiting or self._crew.running:
            try:
                if self._crew.generation != self._cluster.generation:
                    raise LostCluster
                self._staff(len(waiting) + len(self._crew.running))
                while waiting and self._crew.idle:
                    self._send(calls, waiting[0])
                    waiting.popleft()
                self._look(waiting, deaths, take)
            except (LostCluster, ConnectionError, ray_module().exceptions.RaySystemError):
                waiting.extend(sorted(place for _, place in self._crew.running.values()))
                self._begin_anew()
        self._crew.sent.clear()

    def close(self) -> None:
        """Ends the workers: a cluster that is not ours goes on without us."""
        ray, crew = ray_module(), self._crew
        busy = [worker for worker, _ in (*crew.running.values(), *crew.starting.values())]
        for worker in (*crew.idle, *busy) if crew.generation == self._cluster.generation else ():
            with suppress(Exception):
                ray.kill(worker)
        self._crew = _nobody()

    def _begin_anew(self) -> None:
        """A crew without workers yet, on a cluster that is connected and large enough."""
        generation = self._crew.generation
        self._crew = _nobody()  # what it held belongs to the old connection
        if generation == self._cluster.generation:
            self._cluster.reconnect(generation)
        processors = self._cluster.processors()
        if processors < (self._most or 1):  # Ray would keep a worker waiting for ever
            raise BazaarError(
                f"engine.workers = {self._most or 1} and the Ray cluster has {processors} processors: lower workers, or "
                "add machines"
            )
        self._crew = _Crew(self._cluster.generation, self._most or processors)

    def _staff(self, calls: int) -> None:
        missing = min(calls, self._crew.most) - self._crew.size
        if missing <= 0:
            return
        ray = ray_module()
        actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(self._class)
        work = ray.put(self._work)
        for _ in range(missing):
            worker = actor.remote(work)
            self._crew.starting[worker.versions.remote()] = worker, time.monotonic()

    def _send(self, calls: Sequence[Call], place: int) -> None:
        worker, call = self._crew.idle.pop(), calls[place]
        arguments = [self._sent(argument) for argument in call.arguments]
        self._crew.running[getattr(worker, call.method).remote(*arguments)] = worker, place

    def _sent(self, argument: Any) -> Any:
        if not isinstance(argument, Shared):
            return argument
        if argument not in self._crew.sent:
            self._crew.sent[argument] = ray_module().put(argument.value)
        return self._crew.sent[argument]

    def _look(self, waiting: deque[int], deaths: Counter[int], take: Callable[[int, Any], None]) -> None:
        """Takes what has come in the meantime; waits for it where there is nothing else to do."""
        ray, crew = ray_module(), self._crew
        ready, _ = ray.wait([*crew.running, *crew.starting], num_returns=1, timeout=LOOK)
        if not ready and self._cluster.lost():
            raise LostCluster
        for answer in ready:
            if answer in crew.starting:
                self._note_start(answer)
                continue
            worker, place = crew.running[answer]
            try:
                value = ray.get(answer)
            except _deaths() as death:
                if self._cluster.lost():
                    raise LostCluster from None
                del crew.running[answer]
                waiting.appendleft(place)
                deaths[place] += 1
                if deaths[place] == MOST_DEATHS:
                    raise _given_up(f"{MOST_DEATHS} workers on end died of one ask", death) from None
            except ray.exceptions.RayTaskError as error:
                del crew.running[answer]
                crew.idle.append(worker)
                raise error.cause if isinstance(error.cause, Exception) else error from None
            else:
                del crew.running[answer]
                crew.idle.append(worker)
                take(place, value)
        if not ready:
            self._refuse_to_wait()

    def _note_start(self, answer: Any) -> None:
        ray, crew = ray_module(), self._crew
        worker, _ = crew.starting[answer]
        try:
            versions = ray.get(answer)
        except _deaths() as death:
            if self._cluster.lost():
                raise LostCluster from None
            del crew.starting[answer]
            self._failed_starts += 1
            if "__init__()" in str(death):  # it has not died: it was refused, and would be again
                raise BazaarError(
                    f"a worker cannot be made ({_said_by(death)}): what models and oracles are made of must be installed "
                    "on every machine of the cluster"
                ) from None
            if self._failed_starts == MOST_DEATHS:
                raise _given_up(f"{MOST_DEATHS} workers on end did not start", death) from None
            return
        self._failed_starts = 0
        del crew.starting[answer]
        self._welcome(versions)
        crew.idle.append(worker)

    def _refuse_to_wait(self) -> None:
        """Where no worker is there and none has come for long, somebody else holds the processors."""
        crew = self._crew
        if crew.idle or crew.running or not crew.starting:
            return
        if time.monotonic() - min(began for _, began in crew.starting.values()) > self._cluster.wait:
            raise BazaarError(
                f"no worker has started in {self._cluster.wait:g} s: the Ray cluster has "
                f"{self._cluster.free_processors()} free processors of {self._cluster.processors()}; wait for others "
                "to end, or add machines, and go on with the run"
            )


def _deaths() -> tuple[type[BaseException], ...]:
    """How Ray says that a worker, or the machine with its answer, is no more."""
    known = ray_module().exceptions
    return known.RayActorError, known.ObjectLostError, known.WorkerCrashedError, known.LocalRayletDiedError


def _given_up(what: str, death: BaseException) -> BazaarError:
    return BazaarError(
        f"{what} ({_said_by(death)}): see whether every machine has memory for a copy of all data for each worker, and "
        "go on with the run"
    )


def _said_by(death: BaseException) -> str:
    """The line that says why, of the many that Ray has."""
    lines = [line.strip() for line in str(death).splitlines() if line.strip()] or [type(death).__name__]
    return next((line for line in reversed(lines) if "Error" in line or "exit" in line), lines[0])[:200].rstrip(".")
