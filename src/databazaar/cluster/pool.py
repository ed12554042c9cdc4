"""Workers of a Ray cluster that are given calls one at a time, and that are replaced when they die.

A worker that dies is no answer: its call goes to another. Ray's own restarts are not used, because they lose the
arguments that a worker was made with once these have left the object store (ray-project/ray#53727).
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from databazaar.cluster.host import Host
from databazaar.cluster.settings import Kept, Request, Settings
from databazaar.cluster.todo import Heap, Tell, Worker
from databazaar.errors import BazaarError

MOST_DEATHS = 5
"""A call that so many workers have died of, or as many workers on end that do not start, end the run."""
LOOK = 1.0
"""Seconds between two looks at whether anybody comes at all."""


class WorkerPool:
    """As many workers as there are calls for, up to the number that the settings name, or one for each processor."""

    def __init__(self, ray: Any, settings: Settings, maker: str, work: bytes) -> None:
        self._ray, self._settings = ray, settings
        known = ray.exceptions
        self._deaths = known.RayActorError, known.ObjectLostError, known.WorkerCrashedError
        processors = self._processors()
        self._most = settings.workers or processors
        if processors < max(1, self._most):  # Ray would keep a worker waiting for ever
            raise BazaarError(
                f"engine.workers = {self._most} and the Ray cluster has {processors} processors: lower workers, or add "
                "machines"
            )
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Host)
        self._maker, self._work = maker, ray.put(work)
        self._kept: dict[int | str, Any] = {}
        self._idle: list[Worker] = []
        self._running: dict[Any, tuple[Worker, Any]] = {}
        self._starting: dict[Any, tuple[Worker, float]] = {}
        self._failed_starts = 0

    def keep(self, kept: Kept) -> None:
        self._kept.pop(kept.name, None)
        if kept.array is not None:
            self._kept[kept.name] = self._ray.put(kept.array.open(writable=False))

    def serve(self, request: Request, tell: Tell) -> None:
        """Has all of it answered, and tells of each answer when it comes."""
        inputs = dict(self._kept)
        for number, shared in enumerate(request.inputs):
            inputs[number] = self._ray.put(shared.open(writable=False))
        todo = Heap(request, inputs, request.output.open(writable=True), tell)
        deaths = Counter[Any]()
        while not todo.done:
            self._staff(todo.calls)
            for worker in [*self._idle]:
                if (taken := todo.take(worker)) is not None:
                    place, sent = taken
                    self._idle.remove(worker)
                    self._running[sent] = worker, place
            ready, _ = self._ray.wait([*self._running, *self._starting], num_returns=1, timeout=LOOK)
            for answer in ready:
                if answer in self._starting:
                    self._note_start(answer)
                    continue
                worker, place = self._running.pop(answer)
                try:
                    todo.answered(place, self._ray.get(answer))
                except self._deaths as death:
                    todo.lost(place)
                    deaths[place] += 1
                    if deaths[place] == MOST_DEATHS:
                        raise _given_up(f"{MOST_DEATHS} workers on end died of one ask", death) from None
                    continue
                except self._ray.exceptions.RayTaskError as error:
                    raise _given_up("a worker failed", error) from None
                self._idle.append(worker)
            if not ready:
                self._refuse_to_wait()

    def _processors(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _staff(self, calls: int) -> None:
        missing = min(calls, self._most) - len(self._idle) - len(self._running) - len(self._starting)
        for _ in range(missing):
            actor = self._actor.remote(self._maker, self._work)
            self._starting[actor.versions.remote()] = Worker(actor), time.monotonic()

    def _note_start(self, answer: Any) -> None:
        worker, _ = self._starting.pop(answer)
        try:
            theirs = self._ray.get(answer)
        except self._deaths as death:
            self._failed_starts += 1
            if "__init__()" in str(death):  # it has not died: it was refused, and would be again
                raise BazaarError(
                    f"a worker cannot be made ({_said_by(death)}): what models and oracles are made of must be "
                    "installed on every machine of the cluster"
                ) from None
            if self._failed_starts == MOST_DEATHS:
                raise _given_up(f"{MOST_DEATHS} workers on end did not start", death) from None
            return
        self._failed_starts = 0
        for name, ours in self._settings.versions.items():
            if theirs.get(name) != ours:
                raise BazaarError(
                    f"a machine of the Ray cluster has {name} {theirs.get(name)} and this one has {ours}: "
                    "install the same"
                )
        self._idle.append(worker)

    def _refuse_to_wait(self) -> None:
        """Where no worker is there and none has come for long, somebody else holds the processors."""
        if self._idle or self._running or not self._starting:
            return
        wait = self._settings.wait
        if time.monotonic() - min(began for _, began in self._starting.values()) > wait:
            free = int(self._ray.available_resources().get("CPU", 0))
            raise BazaarError(
                f"no worker has started in {wait:g} s, because the Ray cluster has {free} free processors of "
                f"{self._processors()}: wait for others to end, or add machines, and go on with the run"
            )


def _given_up(what: str, death: BaseException) -> BazaarError:
    return BazaarError(
        f"{what} ({_said_by(death)}): see whether every machine has memory for a copy of all data for each worker, and "
        "go on with the run"
    )


def _said_by(death: BaseException) -> str:
    """The line that says why, of the many that Ray has."""
    lines = [line.strip() for line in str(death).splitlines() if line.strip()] or [type(death).__name__]
    return next((line for line in reversed(lines) if "Error" in line or "exit" in line), lines[0])[:200].rstrip(".")
