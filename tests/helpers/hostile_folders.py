"""Runs of a small market on disk, finished and not, for whoever wants to spoil a copy of one."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cli_markets import bazaar, write_market

from databazaar.canonical import canonical
from databazaar.config.jobs import market_job
from databazaar.config.play import environment_of
from databazaar.ledger import Entry
from databazaar.runs.folder import RunFolder
from forging import reseal


class StoppedError(Exception):
    """As if the process had been killed."""


def finished_run(place: Path) -> Path:
    """A run as `bazaar run` leaves it."""
    done = bazaar("run", write_market(place / "market", budget='"8.00"'), "--out", place / "run", "--quiet")
    assert done.code == 0, done
    return place / "run"


def stopped_run(place: Path, rounds: int = 2) -> Path:
    """The same, stopped after some rounds."""
    job = market_job(write_market(place / "market", budget='"8.00"'))

    def stop(progress: Any) -> None:
        if progress.round == rounds:
            raise StoppedError

    with closing(job.arbiter()) as arbiter:
        folder = RunFolder.create(place / "run", {**job.recipe, "title": job.title})
        folder.state(environment_of(arbiter.engine.device))
        try:
            arbiter.run(folder, tell=stop)
        except StoppedError:
            return folder.path
    raise AssertionError("it ended before it was stopped")


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """What hangs longer fails."""

    def late(*_: object) -> None:
        raise AssertionError(f"still at it after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def rewrite_ledger(run: Path, forge: Callable[[list[Entry]], list[Entry]]) -> str:
    """Writes the ledger of a run anew, every entry sealed again, as somebody can who has the file; the new head."""
    with closing(sqlite3.connect(run / "ledger.sqlite")) as database:
        columns = "seq, kind, round, draw, provider, amount, body, hash"
        rows = database.execute(f"SELECT {columns} FROM bazaar_entries ORDER BY seq").fetchall()
        (id,) = database.execute("SELECT DISTINCT run FROM bazaar_entries").fetchone()
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        read = [Entry(s, k, r, d, p, a, json.loads(body), seal) for s, k, r, d, p, a, body, seal in rows]
        forged = reseal(forge(read))
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM bazaar_entries")
        database.executemany(
            "INSERT INTO bazaar_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(id, *entry.fields[:6], canonical(entry.body), entry.hash) for entry in forged],
        )
        for _, sql in triggers:
            database.execute(sql)
        database.commit()
    return forged[-1].hash


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
