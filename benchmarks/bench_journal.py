"""The hub's journal: transfers a second by eight writers, and postings a second audited.

.venv/bin/python benchmarks/bench_journal.py                                   # SQLite alone
.venv/bin/python benchmarks/bench_journal.py --postgres postgresql://me@/empty  # and a new database of yours
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sqlalchemy import func, select

from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Organisation, Posting
from databazaar.service.database.upgrade import upgrade

WRITERS = 8


def write(url: str, writer: int, count: int, ready: Barrier) -> None:
    """One writer's deposits, each a transfer of two postings."""
    database = Database(url)
    with database.read() as session:
        journal.balance(session, "outside")
    ready.wait()
    for number in range(count):
        moved = {"outside": -1, f"cash:org{writer}": 1}
        with database.begin() as session:
            journal.post(session, "deposit", f"deposit:{writer}-{number}", moved)
    database.dispose()


def measure(url: str, count: int) -> float:
    """Seconds in which eight processes write their share of `count` transfers."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WRITERS + 1)
    share = count // WRITERS
    given = [(url, writer, share, ready) for writer in range(WRITERS)]
    processes = [context.Process(target=write, args=args) for args in given]
    for process in processes:
        process.start()
    ready.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return (time.perf_counter() - began) / (share * WRITERS)


def bench(name: str, url: str, count: int) -> None:
    database = Database(url)
    upgrade(database)
    with database.begin() as session:
        session.add_all(Organisation(slug=f"org{number}", name=f"{number}") for number in range(WRITERS))
    each = measure(url, count)
    print(f"{name:10} {each * 1000:6.3f} ms a transfer, {1 / each:8.0f} a second", flush=True)
    with database.read() as session:
        began = time.perf_counter()
        found = journal.audit(session)
        seconds = time.perf_counter() - began
        postings = session.scalar(select(func.count()).select_from(Posting)) or 0
    assert found.ok, found.message
    rate = postings / seconds
    print(f"{name:10} audit of {postings} postings: {seconds:.2f} s, {rate:8.0f} postings a second", flush=True)
    database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--postgres", help="the address of an empty database")
    parser.add_argument("--count", type=int, default=1_600)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench("SQLite", f"sqlite:///{Path(folder) / 'hub.sqlite'}", given.count)
    if given.postgres:
        bench("PostgreSQL", given.postgres, given.count)


if __name__ == "__main__":
    main()
