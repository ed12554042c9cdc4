"""Markets of many providers: a ledger opened, audited and told.

    .venv/bin/python benchmarks/bench_large_markets.py [--providers 100000] [--rounds 1000] [--sampler osmd]

Audit and report are measured in a process of their own each, the audit several times.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from databazaar.ledger import Notary
from databazaar.reports.run_page import write_report
from databazaar.runs.folder import RunFolder
from long_ledgers import make

PER_ROUND, AUDITS = 10, 5
Found = TypeVar("Found")


def audited(place: Path) -> tuple[float, float]:
    """Seconds until the terms are read and checked, and rounds a second from there on."""
    began, entries = time.process_time(), RunFolder(place).entries()
    notary = Notary([next(entries)])
    opened = time.process_time()
    for entry in entries:
        notary.take(entry)
    notary.check_end()
    assert notary.audit.closed
    return opened - began, notary.audit.rounds / (time.process_time() - opened)


def told(place: Path) -> int:
    """The report with its figures and statements, after a replay."""
    return write_report(RunFolder(place)).stat().st_size


def measured(work: Callable[[Path], Found], place: Path) -> tuple[Found, float, float]:
    """What it came to, CPU seconds, and GiB at the most."""
    began = time.process_time()
    found = work(place)
    return found, time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def ledgers(n: int, rounds: int, sampler: str) -> None:
    with tempfile.TemporaryDirectory() as parent:
        place, alone = Path(parent) / "run", multiprocessing.get_context("spawn")
        began = time.process_time()
        make(place, rounds, n, PER_ROUND, sampler)
        played = time.process_time() - began
        results = list[Any]()
        for work in (*[audited] * AUDITS, told):
            with alone.Pool(1) as process:
                results.append(process.apply(measured, (work, place)))
        *audits, (page, telling, held) = results
        opening, memory = statistics.median(found[0] for found, _, _ in audits), audits[0][2]
        rates = sorted(found[1] for found, _, _ in audits)
        sizes = {file.name: file.stat().st_size for file in place.rglob("*") if file.is_file()}
    print(f"a ledger of {n:,} providers and {rounds:,} rounds of {PER_ROUND}, CPU time")
    print(
        f"  {sizes['ledger.sqlite'] / 2**20:.0f} MiB, made in {played:.1f} s; terms read and checked in {opening:.1f} s"
    )
    middle, spread = statistics.median(rates), f"{rates[0]:,.0f} to {rates[-1]:,.0f} in {AUDITS} audits"
    print(f"  audited at {middle:,.0f} rounds a second after the terms ({spread}), {memory:.1f} GiB")
    print(f"  told in {telling:.1f} s, {held:.1f} GiB: a page of {page / 2**20:.1f} MiB", end="")
    print(f", statements of {sizes['statement.csv'] / 2**20:.0f} and {sizes['statement.json'] / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--providers", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--sampler", default="osmd")
    given = parser.parse_args()
    ledgers(given.providers, given.rounds, given.sampler)


if __name__ == "__main__":
    main()
