"""The hub's journal: transfers a second by eight writers, one by one and in batches, and postings a second audited.

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

from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Organisation
from databazaar.service.database.upgrade import upgrade

WRITERS = 8


def write(url: str, writer: int, count: int, batch: int, tag: str, ready: Barrier) -> None:
    """One writer's deposits, each a transfer of two postings."""
    database = Database(url)
    with database.read() as session:
        journal.balance(session, "outside")
    ready.wait()
    for begin in range(0, count, batch):
        keys = [f"deposit:{tag}-{writer}-{number}" for number in range(begin, begin + batch)]
        with database.begin() as session:
            journal.post_all(
                session, [journal.Transfer("deposit", key, {"outside": -1, f"cash:org{writer}": 1}) for key in keys]
            )
    database.dispose()


def measure(url: str, count: int, batch: int) -> float:
    """Seconds in which eight processes write their share of `count` transfers."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WRITERS + 1)
    share = count // WRITERS // batch * batch
    given = [(url, writer, share, batch, f"b{batch}", ready) for writer in range(WRITERS)]
    processes = [context.Process(target=write, args=args) for args in given]
    for process in processes:
        process.start()
    ready.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return (time.perf_counter() - began) / (share * WRITERS)


def bench(name: str, url: str, singles: int, batched: int) -> None:
    database = Database(url)
    upgrade(database)
    with database.begin() as session:
        session.add_all(Organisation(slug=f"org{number}", name=f"{number}") for number in range(WRITERS))
    for count, batch in ((singles, 1), (batched, 100)):
        each = measure(url, count, batch)
        print(f"{name:10} batches of {batch:3}: {each * 1000:6.3f} ms a transfer, {1 / each:8.0f} a second", flush=True)
    with database.read() as session:
        began = time.perf_counter()
        found = journal.audit(session)
        seconds = time.perf_counter() - began
    assert found.ok, found.message
    rate = found.postings / seconds
    print(f"{name:10} audit of {found.postings} postings: {seconds:.2f} s, {rate:8.0f} postings a second", flush=True)
    database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--postgres", help="the address of an empty database")
    parser.add_argument("--singles", type=int, default=1_600)
    parser.add_argument("--batched", type=int, default=40_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench("SQLite", f"sqlite:///{Path(folder) / 'hub.sqlite'}", given.singles, given.batched)
    if given.postgres:
        bench("PostgreSQL", given.postgres, given.singles, given.batched)


if __name__ == "__main__":
    main()
