"""kill -9 at many points of jobs over a real federation, beside one over files: a provider's process, the
market's server, a runner while it asks, the hub.

Every market is a copy of one, with the same ids of jobs and the same keys of sites, so an undisturbed run comes to the
same head each time. Where arbiter or server were killed, so must a disturbed one. Where a provider was killed while it
was asked, its access is void, and what follows is another run: then all before that must be the same, nobody but that
provider may have a void access, and for no other reason than that it was away.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from databazaar.federation import server
from databazaar.federation.transport import UNANSWERED
from databazaar.runs.folder import RunFolder
from databazaar.service.database.connection import Database
from databazaar.service.hub.progress import played
from databazaar.service.lifecycle import OVER
from databazaar.service.settings import Settings
from desk_market import table
from hub_faults import Hubs, Struck, alive, hubs
from hub_market import HubMarket, hub_market, kill_worker, outcome_of_run, wrong_with_books
from site_market import SITE_SPEC, SITES, Sites, offer_site

BUYERS = {"first": "buyer", "second": "rival"}
"""The jobs over sites."""
LONG = {**SITE_SPEC, "market": {"budget": "2.00", "per_round": 2, "seed": 7}}
KINDS = ("runner", "server", "hub", "hub and provider", "provider")


@dataclass(frozen=True)
class SitePoint:
    """What is killed, when so many rounds of a job are played and its runner asks."""

    what: str
    round: int
    job: str = "first"
    site: str = SITES[0]
    when: str = "an ask"

    def __str__(self) -> str:
        return f"{self.what} after round {self.round} of {self.job}"


def site_points(count: int, seed: int = 0) -> list[SitePoint]:
    """So many, every kind in turn."""
    rng = random.Random(seed)
    jobs, numbers = tuple(BUYERS), range(count)
    return [
        SitePoint(KINDS[place % len(KINDS)], rng.randint(1, 14), jobs[place % 2], SITES[rng.randrange(2)])
        for place in numbers
    ]


def queued_market(database: Database, settings: Settings) -> HubMarket:
    """Two consumers' jobs over the sites, and one over files, all funded and in the queue."""
    market = hub_market(database, settings, ("plain",))
    for name in SITES:
        offer_site(market, name)
    for place, (name, buyer) in enumerate(BUYERS.items()):
        market.add(name, LONG, buyer, table(99 - place, rows=80), SITES)
    return market


@dataclass
class SiteStage:
    """Plays points on copies of a market whose jobs are in the queue. `made` belongs to nobody else. `void` counts jobs
    that went another way, because a provider was away when it was asked."""

    sites: Sites
    made: HubMarket
    home: Path
    whole: dict[str, tuple[str, str]] = field(default_factory=dict)
    void: int = 0
    _count: int = 0

    def play(self, points: Sequence[SitePoint]) -> list[Struck]:
        """All of these in one market, and then to its end. The first time, without any, what each must come to."""
        market, log = self._copy()
        struck = []
        try:
            with hubs(market.settings, log) as running:
                for point in sorted(points, key=lambda point: point.round):
                    struck.append(Struck(point, self._come(market, running, point)))
                market.wait(lambda: alive(running) and market.over(), "it did not come to its end")
                assert running.hub.stop() == 0, log.read_text()
            wrong = self._wrong(market, {point.site for point in points if point.what == "provider"})
        finally:
            market.database.dispose()
        return [replace(one, wrong=wrong) for one in struck]

    def _copy(self) -> tuple[HubMarket, Path]:
        folder, old = self.home / f"market{self._count}", self.made.settings
        self._count += 1
        shutil.copytree(old.home, folder / "hub")
        with (
            closing(sqlite3.connect(old.database.removeprefix("sqlite:///"))) as source,
            closing(sqlite3.connect(folder / "hub.sqlite")) as target,
        ):
            source.backup(target)
        url = f"sqlite:///{folder / 'hub.sqlite'}"
        settings = replace(old, home=folder / "hub", database=url, attempts=1000)
        return replace(self.made, settings=settings, database=Database(url)), folder / "log.txt"

    def _come(self, market: HubMarket, running: Hubs, point: SitePoint) -> bool:
        """Waits for the point and strikes; False where its job was over before."""
        job_id, come = market.jobs[point.job], False

        def moment() -> bool:
            nonlocal come
            alive(running)
            come = played(market.settings, job_id) >= point.round and self._asks(BUYERS[point.job])
            return come or market.states()[job_id] in ("settling", *OVER)

        market.wait(moment, f"{point} did not come")
        return come and self._strike(market, running, point)

    def _asks(self, consumer: str) -> bool:
        return any(consumer in queue.asked for queue in server.status(self.sites.market).queues.values())

    def _strike(self, market: HubMarket, running: Hubs, point: SitePoint) -> bool:
        hit = True
        if point.what == "runner":
            hit = kill_worker(market.settings, market.jobs[point.job])
        if point.what.startswith("hub"):
            hit = running.hub.kill()
        if point.what.endswith("provider"):
            self.sites.kill(point.site)
            self.sites.start(point.site)
        if point.what == "server":
            pid = server.status(self.sites.market).pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
            self.sites.up()
        if point.what.startswith("hub"):
            running.start()
        return hit

    def _wrong(self, market: HubMarket, away: set[str]) -> str | None:
        for name in market.jobs:
            job, run = market.job(name), market.run(name)
            if job.state != "settled":
                return f"{name} is {job.state}: {job.reason}"
            found = outcome_of_run(run)
            if found == self.whole.setdefault(name, found) and job.run_head == found[1]:
                continue
            if name not in BUYERS or not away:
                return f"{name} came to another end"
            if (why := self._unexplained(market, name, away)) is not None:
                return f"{name}: {why}"
            self.void += 1
        return wrong_with_books(market)

    def _unexplained(self, market: HubMarket, name: str, away: set[str]) -> str | None:
        """What differs from the undisturbed run for another reason than that these sites were away."""
        audit = RunFolder(market.run(name)).audit()
        if not audit.ok:
            return audit.message
        lines, whole = lines_of(market.run(name)), lines_of(self.home / "market0/hub/jobs" / market.jobs[name] / "run")
        first = next((place for place, line in enumerate(lines) if line[-1]), len(lines))
        begin = [line for line in lines if line[0] < (lines[first][0] if first < len(lines) else len(lines))]
        if begin != whole[: len(begin)]:
            return "rounds before the first void access are others"
        for _, provider, paid, _, failure in lines:
            if failure and (provider not in away or paid or failure not in UNANSWERED):
                return f"{provider} is void: {failure}"
        return None


def lines_of(run: Path) -> list[tuple[int, str, int, float | None, str]]:
    """Every access: round, provider, pay, gain, and the code of why it is void."""
    audit = RunFolder(run).replay()
    assert audit.record is not None and audit.terms is not None
    ids = audit.terms.roster.ids
    return [
        (number, ids[access.provider], access.paid, access.gain, "" if access.failure is None else access.failure.name)
        for number, round in enumerate(audit.record.rounds)
        for access in round.accesses
    ]
