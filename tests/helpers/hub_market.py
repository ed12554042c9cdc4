"""A market of the service with three consumers' jobs in its queue, and the real hub process that runs them."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy import select

import sql_faults
from databazaar import registry
from databazaar.cli import main
from databazaar.service import jobs, journal, submission
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Job, JournalEntry, Receipt
from databazaar.service.hub.folder import LOCK, write_market
from databazaar.service.lifecycle import OVER
from databazaar.service.settings import Settings
from desk_market import DeskMarket, desk_market, table
from processes import Forked

SCRIPT = Path(__file__).with_name("hub_script.py")
PLUGIN = Path(__file__).parents[1] / "service/hub/dropping"
"""A package with an aggregator, as an installer would leave it: to be put on the path."""


def install_plugin(patch: pytest.MonkeyPatch) -> None:
    """Puts the package on the path for a test. What this process has looked up of installed packages is looked up anew,
    and is afterwards what it was."""
    patch.syspath_prepend(str(PLUGIN))
    for name in ("_installed", "_distributions"):
        patch.setattr(registry, name, functools.cache(getattr(registry, name).__wrapped__))


PATIENCE = 600.0
"""Seconds after which what has not come never will, also on a busy machine."""
PROVIDERS = ("north", "south")
OFFERS = ("north-sales", "south-sales")
SPEC: dict[str, Any] = {
    "data": {"target": "late", "task": "classification", "audit": 0.2},
    "model": {"kind": "logistic"},
    "oracle": {"kind": "local-sgd", "steps": 4, "batch_size": 8},
}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {**SPEC, "market": {"budget": "2.00", "per_round": 2, "seed": 3}},
    "rows": {
        "market": {"budget": "2.40", "per_round": 2, "seed": 4},
        "data": SPEC["data"],
        "model": {"kind": "auto"},
        "defence": {"kind": "standard"},
    },
    "dropping": {**SPEC, "market": {"budget": "2.00", "per_round": 2, "seed": 5}, "aggregator": {"kind": "dropping"}},
}
"""Twenty rounds or so each; the second buys rows, the last draws from torch's global random state in every one."""
BUYERS = {"plain": "buyer", "rows": "rival", "dropping": "buyer"}


@dataclass
class HubMarket:
    """The jobs' ids by the names of their specs."""

    desk: DeskMarket
    settings: Settings
    database: Database
    jobs: dict[str, str]

    def caller(self, name: str) -> Caller:
        return self.desk[BUYERS[name]]

    def run(self, name: str) -> Path:
        return self.settings.run_folder(self.jobs[name])

    def states(self) -> dict[str, str]:
        with self.database.read() as session:
            return dict(session.execute(select(Job.id, Job.state)).all())

    def job(self, name: str) -> Job:
        with self.database.read() as session:
            return session.get_one(Job, self.jobs[name])

    def wait(self, until: Callable[[], bool], what: str = "the moment did not come") -> None:
        end = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < end, f"{what}: {self.told()}"
            time.sleep(0.02)

    def over(self) -> bool:
        return all(state in OVER for state in self.states().values())

    def told(self) -> str:
        with self.database.read() as session:
            found = [f"{job.name} is {job.state} ({job.reason})" for job in session.scalars(select(Job))]
        logs = [path.read_text()[-1500:] for path in self.settings.home.glob("jobs/*/runner.log")]
        return "\n".join([*found, *logs])

    def add(
        self,
        name: str,
        spec: Mapping[str, Any] | None = None,
        buyer: str = "buyer",
        content: bytes | None = None,
        offers: Sequence[str] = OFFERS,
    ) -> str:
        """One more job, funded and in the queue; its hold-out has this `content`, or that of all."""
        desk = self.desk
        with self.database.begin() as session:
            holdout = desk.upload(session, buyer, content or table(99, rows=80))
            caller, settings = desk[buyer], self.settings
            made = jobs.draft(
                session,
                caller,
                settings,
                name=name,
                spec=dict(spec or SPECS[name]),
                files={"holdout": holdout},
                offers=list(offers),
            )
            submission.submit(session, caller, settings, made.id)
            jobs.fund(session, caller, made.id)
            self.jobs[name] = made.id
            return made.id


def hub_market(database: Database, settings: Settings, names: tuple[str, ...] = tuple(SPECS)) -> HubMarket:
    """A market whose jobs are funded and queued; no hub works on it yet."""
    settings = replace(settings, database=str(database.engine.url.render_as_string(hide_password=False)), runners=3)
    desk = desk_market(database, settings)
    with database.begin() as session:
        for seed, slug in enumerate(PROVIDERS):
            desk.offer(session, slug, seed)
        for slug in ("buyer", "rival"):
            desk.pay_in(session, slug, 100_000)
    market = HubMarket(desk, settings, database, {})
    for name in names:
        market.add(name, buyer=BUYERS[name])
    return market


class Hub:
    """A real hub's process, started when it is made."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.fault = settings.home / "fault.json"
        given = {"home": str(settings.home), "database": settings.database, "runners": settings.runners}
        given |= {
            "attempts": settings.attempts,
            "federation": None if settings.federation is None else str(settings.federation),
        }
        paths = [str(SCRIPT.parent), str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), sql_faults.VARIABLE: str(self.fault)}
        with log.open("a") as stream:
            command = [sys.executable, str(SCRIPT), json.dumps(given)]
            self.process = Forked(command, serves=True, stdout=subprocess.PIPE, stderr=stream, env=environment)

    def ready(self) -> bool:
        """Waits until it works; False where it ends before that."""
        assert self.process.stdout is not None
        return bool(self.process.stdout.readline() == b"ready\n")

    def kill(self) -> bool:
        """kill -9; whether it was alive."""
        alive = self.process.poll() is None
        self.process.kill()
        self._gone()
        return alive

    def stop(self) -> int:
        """As the operator stops it; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def hub(settings: Settings, log: Path) -> Iterator[Hub]:
    started = Hub(settings, log)
    try:
        assert started.ready(), log.read_text()
        yield started
    finally:
        started.kill()


def worker_of(settings: Settings, job_id: str) -> int | None:
    """The process that works in a job's folder now: the kernel knows who holds its lock."""
    try:
        inode = (settings.job_folder(job_id) / LOCK).stat().st_ino
    except FileNotFoundError:
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return int(fields[4])
    return None


def kill_worker(settings: Settings, job_id: str) -> bool:
    """kill -9 of that process; whether there was one."""
    pid = worker_of(settings, job_id)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


_alone: dict[tuple[tuple[str, bytes], ...], tuple[str, str]] = {}


def run_alone(market: HubMarket, name: str, out: Path) -> tuple[str, str]:
    """What a job's market.toml comes to from the shell; it is played once in a process for the same files."""
    with market.database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, market.jobs[name]))
    files = sorted(file for file in path.parent.rglob("*") if file.is_file())
    key = tuple((str(file.relative_to(path.parent)), file.read_bytes()) for file in files)
    if key not in _alone:
        _alone[key] = _played_alone(path, out)
    return _alone[key]


def _played_alone(path: Path, out: Path) -> tuple[str, str]:
    command = ["bazaar", "run", str(path), "--out", str(out), "--quiet"]
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        main()
    return outcome_of_run(out)


def outcome_of_run(run: Path) -> tuple[str, str]:
    """What two runs of one market must share: the model's hash and the ledger's head."""
    summary = json.loads((run / "summary.json").read_text())
    return summary["model_hash"], summary["ledger_head"]


def wrong_with_books(market: HubMarket) -> str | None:
    """What does not hold across jobs: the journal, the escrows, and every access paid once."""
    with market.database.read() as session:
        audit = journal.audit(session)
        if not audit.ok:
            return audit.message
        for job in session.scalars(select(Job)):
            if journal.balance(session, journal.escrow(job.id)):
                return f"{job.name} has an escrow left"
            closes = session.scalars(select(JournalEntry).where(JournalEntry.key == f"close:{job.id}")).all()
            contracts = session.scalars(select(Contract).where(Contract.job_id == job.id)).all()
            if len(closes) != 1 or any(contract.state != "ended" for contract in contracts):
                return f"{job.name} was closed {len(closes)} times"
            if sum(contract.paid or 0 for contract in contracts) != job.paid:
                return f"{job.name} paid other amounts than its contracts say"
            if (job.paid or 0) + (job.fee or 0) + (job.refunded or 0) != job.escrow:
                return f"{job.name} does not come to its escrow"
        owed = sum(contract.paid or 0 for contract in session.scalars(select(Contract)))
        held = sum(journal.balance(session, journal.earned(slug)) for slug in PROVIDERS)
        receipts = session.scalars(select(Receipt)).all()
        if not owed == held == sum(receipt.body["paid"] for receipt in receipts):
            return f"providers hold {held}, contracts say {owed}"
    return None
