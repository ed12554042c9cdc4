"""A hub under load: how fast jobs go there, beside the same jobs from the shell, and how long people wait meanwhile.

    python benchmarks/bench_service.py [--database postgresql] [--jobs 50] [--viewers 100] [--json FILE]

Nine banks sell, five consumers buy; the hub is a real one, with its runners, in a process of its own. A few jobs are
played at the hub alone (`quiet`), the same by `bazaar run`, as many at once (`shell`); then all others are funded at
once while people watch and call (`load`), and then those of the shell once more, so that a machine that gets slower
shows in both. `while playing` is the pace of one job from its first round to its last; `in all` counts everything from
the first job's start to the last one's end, settled and with its page. Viewers and callers work on the same cores as
the hub. Their times are in milliseconds; memory is in MiB. `cost` is what the hub's process works for a call and for an
event that reaches a viewer, of which a busy machine tells more than of times; `--jobs 0 --shell 0` measures it alone.
`bench_journal.py` has the journal's transfers a second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from sqlalchemy import select

from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, JobEvent
from databazaar.service.hub import progress
from databazaar.service.hub.folder import MARKET
from databazaar.service.lifecycle import OVER, JobState
from databazaar.service.settings import Settings
from service_cost import cost
from service_load import Callers, Memory, spread, viewers
from service_market import Bought, make_market
from service_table import table

HERE = Path(__file__).parent
PATIENCE = 900.0
WATCHED = 2.0
"""Seconds that people look on after the last job is over."""
LOOK_EVERY = 5.0
"""Seconds after which memory is looked at, which is work itself."""
COST_JOBS = 2


@contextmanager
def hub(settings: Settings, profile: str = "") -> Iterator[int]:
    """Its process, once it answers."""
    given: dict[str, Any] = {"home": str(settings.home), "database": settings.database, "address": settings.address}
    given |= {"runners": settings.runners, "cash": settings.cash}
    command = [sys.executable, str(HERE / "service_hub.py"), json.dumps(given), profile]
    with (settings.home / "hub.log").open("ab") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            _wait(lambda: _answers(settings.address) or process.poll() is not None, "the hub does not answer")
            if process.poll() is not None:
                raise SystemExit((settings.home / "hub.log").read_text()[-2000:])
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").is_success
    except httpx.TransportError:
        return False


def _wait(until: Callable[[], bool], what: str, every: float = 0.1) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        if time.monotonic() > end:
            raise SystemExit(f"{what} for {PATIENCE:.0f} s")
        time.sleep(every)


def fund(address: str, bought: Sequence[Bought]) -> list[float]:
    """Funds all jobs, one after another as fast as it goes; the milliseconds that each took."""
    took = []
    with httpx.Client(base_url=address, timeout=60.0) as client:
        for one in bought:
            began = time.monotonic()
            headers = {"Authorization": f"Bearer {one.token}", "Idempotency-Key": f"fund-{one.job_id}"}
            client.post(f"/v1/jobs/{one.job_id}/fund", headers=headers).raise_for_status()
            took.append(1e3 * (time.monotonic() - began))
    return took


def at_hub(
    settings: Settings,
    database: Database,
    bought: Sequence[Bought],
    people: int = 0,
    per_second: float = 0.0,
    profile: str = "",
) -> dict[str, Any]:
    """Plays the jobs at the hub, with so many viewers, and calls a second."""
    with hub(settings, profile) as pid, ExitStack() as stack:
        memory, ids = Memory(pid), [one.job_id for one in bought]
        seen = stack.enter_context(viewers(settings.address, bought, people)) if people else None
        callers = stack.enter_context(Callers(settings.address, bought, per_second)) if per_second else None
        _wait(memory.loaded, "the hub is not ready", every=1.0)
        funded, cpu, began = fund(settings.address, bought), memory.cpu(), time.monotonic()

        def over() -> bool:
            memory.look_every(LOOK_EVERY)
            with database.read() as session:
                left = session.scalars(select(Job.id).where(Job.id.in_(ids), Job.state.not_in(OVER)))
                return left.first() is None

        _wait(over, "jobs are not over", every=0.5)
        cpu, worked, took = memory.cpu() - cpu, memory.children_cpu(), time.monotonic() - began
        if people:
            time.sleep(WATCHED)
        stack.close()
    told = {"fund_ms": spread(funded), "hub_cpu": round(cpu / took, 3), "memory_mib": memory.figures()}
    told["cpu_s_a_job"] = round(worked / len(bought), 2)
    if callers is not None:
        told["api"] = callers.figures()
    if seen is not None:
        told["viewers"] = {**seen, "cpu": round(seen["cpu_s"] / took, 3)}
    return {**played(settings, database, ids), **told}


def played(settings: Settings, database: Database, ids: Sequence[str]) -> dict[str, Any]:
    """What the jobs' events and rounds tell of how fast they went."""
    with database.read() as session:
        events = select(JobEvent.job_id, JobEvent.state, JobEvent.at).where(JobEvent.job_id.in_(ids))
        rows = session.execute(events.order_by(JobEvent.number))
        when: dict[str, dict[str, float]] = {one: {} for one in ids}
        for job_id, state, at in rows:
            when[job_id]["over" if state in OVER else state] = at.timestamp()
        states = Counter(session.scalars(select(Job.state).where(Job.id.in_(ids))))
    spans, starts = [], []
    for one in ids:
        rounds = progress.rounds(settings, one)
        first, last = ((rounds[place]["at"], rounds[place]["cpu"]) for place in (0, -1))
        spans.append(Span(first, last, len(rounds)))
        starts.append(1e3 * (rounds[0]["at"] - when[one][JobState.RUNNING]))
    settling = [1e3 * (times["over"] - times[JobState.SETTLING]) for times in when.values()]
    begin, end = min(times[JobState.RUNNING] for times in when.values()), max(times["over"] for times in when.values())
    return {**paces(spans, end - begin), "states": states, "start_ms": spread(starts), "settle_ms": spread(settling)}


class Span(NamedTuple):
    """The rounds of one job: when the first and the last were over, and what its process had worked by then."""

    first: tuple[float, float]
    last: tuple[float, float]
    rounds: int


def paces(spans: Sequence[Span], wall: float) -> dict[str, Any]:
    """Rounds a second: of one job while it plays, and of all in all; and what a round works.

    >>> paces([Span((0.0, 9.0), (2.0, 9.4), 5), Span((1.0, 8.0), (3.0, 8.4), 5)], 5.0)
    {'jobs': 2, 'rounds': 10, 'wall_s': 5.0, 'while_playing': 2.0, 'in_all': 2.0, 'cpu_ms_a_round': 100.0}
    """
    playing, worked = (sum(one.last[place] - one.first[place] for one in spans) for place in (0, 1))
    rounds = sum(one.rounds for one in spans)
    followed = max(1, rounds - len(spans))
    figures = {"wall_s": wall, "while_playing": followed / playing if playing else 0.0, "in_all": rounds / wall}
    figures["cpu_ms_a_round"] = 1e3 * worked / followed
    return {"jobs": len(spans), "rounds": rounds, **{name: round(value, 2) for name, value in figures.items()}}


def from_shell(settings: Settings, bought: Sequence[Bought], folder: Path) -> dict[str, Any]:
    """Plays the jobs' market.toml files by `bazaar run`, as many at once as the hub does."""
    folder.mkdir()
    began, waiting, worked = time.monotonic(), list(bought), _children_cpu()
    running: list[subprocess.Popen[bytes]] = []
    try:
        while waiting or running:
            while waiting and len(running) < settings.runners:
                one = waiting.pop(0)
                market, times = settings.job_folder(one.job_id) / MARKET, folder / f"{one.job_id}.json"
                out = ["run", str(market), "--out", str(folder / one.job_id), "--quiet"]
                command = [sys.executable, str(HERE / "service_shell.py"), str(times), *out]
                running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            time.sleep(0.02)
            running = [process for process in running if process.poll() is None]
    finally:
        for process in running:
            process.kill()
    wall = time.monotonic() - began
    noted = [json.loads((folder / f"{one.job_id}.json").read_text()) for one in bought]
    told = {"cpu_s_a_job": round((_children_cpu() - worked) / len(bought), 2)}
    return {**paces([Span(times["first"], times["last"], times["rounds"]) for times in noted], wall), **told}


def _children_cpu() -> float:
    """Seconds that processes of ours have worked that are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def books(database: Database, bought: Sequence[Bought]) -> dict[str, Any]:
    """Whether the journal holds, and what is left in escrow."""
    with database.read() as session:
        audit = journal.audit(session)
        left = sum(journal.balance(session, journal.escrow(one.job_id)) for one in bought)
    return {"ok": audit.ok, "entries": audit.entries, "escrow_left": left}


def measure(given: argparse.Namespace, home: Path, url: str) -> dict[str, Any]:
    """All phases; what they came to."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    settings = Settings(home / "hub", url, address, runners=given.runners, cash="test")
    settings.home.mkdir(mode=0o700)
    database = Database(settings.database_url)
    count, spare = given.shell + given.jobs, COST_JOBS if given.cost else 0
    bought = make_market(settings, database, given.consumers, count + spare, given.accesses)
    few, many, bought, unplayed = bought[: given.shell], bought[given.shell : count], bought[:count], bought[count:]
    result: dict[str, Any] = {"database": database.engine.dialect.name, "cores": os.cpu_count(), "given": vars(given)}
    if given.cost:
        with hub(settings) as pid:
            memory = Memory(pid)
            _wait(memory.loaded, "the hub is not ready", every=1.0)
            result["cost"] = cost(settings, memory.cpu, unplayed, given.viewers, given.cost)
    if few:
        result["quiet"] = say("quiet", at_hub(settings, database, few))
        result["shell"] = say("shell", from_shell(settings, few, home / "shell"))
    if many:
        load = at_hub(settings, database, many, given.viewers, given.calls, given.profile)
        result["load"] = say("load", load)
    if few:
        result["shell again"] = say("shell again", from_shell(settings, few, home / "shell-again"))
    result["books"] = books(database, bought)
    database.dispose()
    return result


def say(phase: str, found: dict[str, Any]) -> dict[str, Any]:
    told = f"{phase}: {found['jobs']} jobs, {found['rounds']} rounds in {found['wall_s']} s"
    print(told, file=sys.stderr, flush=True)
    return found


@contextmanager
def database_url(kind: str) -> Iterator[str]:
    """Nothing for SQLite in the hub's home; a server of our own, which writes to the disk as a real one does; or what
    was given."""
    if kind != "postgresql":
        yield "" if kind == "sqlite" else kind
        return
    sys.path.append(str(HERE.parent / "tests" / "helpers"))
    from postgres import running

    with running("-c fsync=on") as server:
        yield server.url()


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="sqlite", help="sqlite, postgresql, or the address of an empty one")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--calls", type=float, default=10.0, help="of the API, a second")
    parser.add_argument("--consumers", type=int, default=5)
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--shell", type=int, default=6, help="jobs that are also played from the shell; 0 for none")
    parser.add_argument("--accesses", type=int, default=300, help="that a job pays for")
    parser.add_argument("--cost", type=float, default=10.0, help="seconds for what the hub works by itself; 0 for none")
    parser.add_argument("--profile", default="", help="a file for what the hub was found doing under load")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    return parser.parse_args(given)


def main() -> None:
    given = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the hub and its people end with it
    with tempfile.TemporaryDirectory(prefix="bench-service-") as home, database_url(given.database) as url:
        result = measure(given, Path(home), url)
    print(table(result))
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
