"""kill -9 at many points of three concurrent jobs: runners, the hub, who settles, the server that forks, the database.

After each the market must come to the same models and ledgers as undisturbed, with books that sum to zero and every
access paid at most once. `scripts/service_faults.py` plays many points, and a test a few.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from databazaar.service.database.connection import Database
from databazaar.service.hub.progress import played
from databazaar.service.lifecycle import OVER
from databazaar.service.settings import Settings
from hub_market import SPECS, Hub, HubMarket, hub_market, kill_worker, outcome_of_run, worker_of, wrong_with_books
from postgres import Server

NAMES = tuple(SPECS)
PHASES = (
    "hub statement",
    "runner time",
    "database time",
    "hub time",
    "forkserver round",
    "runner round",
    "runner statement",
)
"""What can come while the jobs run, in this order; then files are written, and then they are settled."""
FILES = ("run.json", "summary.json", "worth.json", "statement.csv", "report.html")


@dataclass(frozen=True)
class Point:
    """What is killed, and when: at a round, a file, a statement to a database, or after so many seconds."""

    what: str
    when: str
    number: int = 0
    job: str = NAMES[0]

    def __str__(self) -> str:
        return (
            f"{self.what} at {self.when} {self.number}"
            if self.when != "file"
            else f"{self.what} at {FILES[self.number]}"
        )

    @property
    def phase(self) -> tuple[int, int]:
        """In which order points come in a market."""
        name = f"{self.what} {self.when}"
        late = len(PHASES) + (self.what == "settler")
        return PHASES.index(name) if name in PHASES else late, self.number


def points(count: int, database: str, seed: int = 0) -> list[Point]:
    """So many points, spread over everything that can be killed."""
    rng = random.Random(seed)
    found = []
    for place in range(count):
        job = NAMES[place % len(NAMES)]
        kinds = [
            Point("runner", "round", rng.randint(1, 34), job),
            Point("settler", "statement", rng.randint(1, 45), job),
            Point("runner", "statement", rng.randint(1, 90), job),
            Point("hub", "statement", rng.randint(1, 60), job),
            Point("runner", "file", rng.randrange(len(FILES)), job),
            Point("settler", "statement", rng.randint(1, 45), job),
            Point("hub", "time", rng.randint(0, 600), job),
            Point("database", "time", rng.randint(0, 600), job)
            if database == "postgresql"
            else Point("runner", "time", rng.randint(0, 600), job),
            Point("forkserver", "round", rng.randint(1, 20), job)
            if place % 3 == 0
            else Point("runner", "time", rng.randint(0, 600), job),
        ]
        found.append(kinds[place % len(kinds)])
    return found


class AnyPoint(Protocol):
    """What a table of points tells of one."""

    @property
    def what(self) -> str: ...

    @property
    def when(self) -> str: ...


@dataclass
class Struck:
    """What came of a point: whether anything was there to be killed, and what was wrong in the end."""

    point: AnyPoint
    hit: bool
    wrong: str | None = None


@dataclass
class Stage:
    """Plays points on new databases of one kind. `whole` is what each job must come to."""

    make_url: Callable[[], str]
    home: Path
    whole: dict[str, tuple[str, str]]
    server: Server | None = None
    _numbers: list[int] = field(default_factory=list)

    def play(self, points: Sequence[Point]) -> list[Struck]:
        """All of these in one market, one after the other, and then to its end."""
        folder = self.home / f"market{len(self._numbers)}"
        self._numbers.append(0)
        database = Database(self.make_url())
        try:
            market = hub_market(database, Settings(home=folder / "hub", cash="test", attempts=100))
            return self._strike(market, points, folder / "log.txt")
        finally:
            database.dispose()

    def _strike(self, market: HubMarket, points: Sequence[Point], log: Path) -> list[Struck]:
        market.settings.home.mkdir(parents=True, exist_ok=True)
        struck = []
        with hubs(market.settings, log) as running:
            for point in sorted(points, key=lambda point: point.phase):
                struck.append(Struck(point, _Strike(market, running, point, self.server).come()))
            market.wait(lambda: alive(running) and market.over(), "it did not come to its end")
            assert running.hub.stop() == 0, log.read_text()
        wrong = self._wrong(market)
        return [Struck(one.point, one.hit, wrong) for one in struck]

    def _wrong(self, market: HubMarket) -> str | None:
        for name in market.jobs:
            job = market.job(name)
            if job.state != "settled":
                return f"{name} is {job.state}: {job.reason}"
            if outcome_of_run(market.run(name)) != self.whole[name] or job.run_head != self.whole[name][1]:
                return f"{name} came to another end"
        return wrong_with_books(market)


class Hubs:
    """The one hub that works, started again when it was killed."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings, self._log = settings, log
        self.start()

    def start(self) -> None:
        self.hub = Hub(self.settings, self._log)
        assert self.hub.ready(), self._log.read_text()


@contextlib.contextmanager
def hubs(settings: Settings, log: Path) -> Iterator[Hubs]:
    running = Hubs(settings, log)
    try:
        yield running
    finally:
        running.hub.kill()


def alive(running: Hubs) -> bool:
    """Starts the hub again where it has been killed."""
    if running.hub.process.poll() is not None:
        running.hub.kill()
        running.start()
    return True


@dataclass
class _Strike:
    market: HubMarket
    hubs: Hubs
    point: Point
    server: Server | None

    def come(self) -> bool:
        """Waits for the point and strikes; False where all was over before."""
        if self.point.when == "statement":
            return self._at_statement()
        if not self._until(self._moment()):
            return False
        return self._strike()

    def _until(self, moment: Callable[[], bool]) -> bool:
        """Whether the moment has come before the point's job was over."""
        come = False

        def ended() -> bool:
            nonlocal come
            alive(self.hubs)
            come = moment()
            return come or self._too_late()

        self.market.wait(ended, f"{self.point} did not come")
        return come

    def _too_late(self) -> bool:
        """Whether what is to be killed has done all that it has to do."""
        if self.point.what == "runner":
            states = self.market.states()
            mine = [states[self.market.jobs[self.point.job]]] if self.point.when != "statement" else states.values()
            return all(state in ("settling", *OVER) for state in mine)
        return self.market.over()

    def _moment(self) -> Callable[[], bool]:
        settings, job_id = self.market.settings, self.market.jobs[self.point.job]
        if self.point.when == "round":
            return lambda: played(settings, job_id) >= self.point.number and worker_of(settings, job_id) is not None
        if self.point.when == "file":
            path = settings.run_folder(job_id) / FILES[self.point.number]
            return path.exists
        began: list[float] = []

        def late_enough() -> bool:
            if worker_of(settings, job_id) is not None:
                began.append(time.monotonic())
            return bool(began) and time.monotonic() > began[0] + self.point.number / 1000

        return late_enough

    def _strike(self) -> bool:
        settings, job_id = self.market.settings, self.market.jobs[self.point.job]
        if self.point.what == "hub":
            alive = self.hubs.hub.kill()
            self.hubs.start()
            return alive
        if self.point.what == "database":
            assert self.server is not None
            self.server.crash()
            self.server.start()
            return True
        if self.point.what == "forkserver":
            pid = worker_of(settings, job_id)
            parent = None if pid is None else _parent_of(pid)
            if parent is not None:
                os.kill(parent, signal.SIGKILL)
            return parent is not None
        return kill_worker(settings, job_id)

    def _at_statement(self) -> bool:
        fault = self.hubs.hub.fault
        draft = fault.with_suffix(".draft")
        draft.write_text(json.dumps({"role": self.point.what, "statement": self.point.number}))
        draft.rename(fault)
        struck = self._until(lambda: not fault.exists())
        fault.unlink(missing_ok=True)
        return struck


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
