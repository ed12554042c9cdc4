"""Markets of very many providers: a step of the sampler beside the dense one, and a ledger opened, audited and told.

    .venv/bin/python benchmarks/bench_large_markets.py [--largest 10000000] [--rounds 5000]

Both samplers take the same draws and gains. Gains are per provider and of the size that `OSMD.from_theory` is made for,
so that some rise, most fall to the floor, and floors are reached and left all the time. A second comparison bars some
from being asked, by their prices. Audit and report are measured in a process of their own each; the audit several
times, since a machine that others share is not always as fast.
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

import numpy as np

from databazaar.ledger import Notary
from databazaar.reports.written import write_report
from databazaar.roster import Purse
from databazaar.runs.folder import RunFolder
from databazaar.samplers import OSMD
from databazaar.samplers.large_osmd import Chances
from databazaar.samplers.protocol import State
from long_ledgers import make

ALPHA, PER_ROUND, AUDITS = 0.1, 10, 5
Found = TypeVar("Found")


def steps(n: int, dense: bool, count: int, worth: np.ndarray, warm: int = 0, barred: int = 0) -> float:
    """Seconds a step, which is a draw and what is learned from it."""
    sampler, quotes = OSMD(eta=2.0 / n, alpha=ALPHA), np.ones(n, dtype=np.int64)
    dear = np.sort(np.random.default_rng(2).permutation(n)[:barred])
    quotes[dear] = 9
    purse = Purse(10**12, quotes, most_per_access=8).knowing(dear)
    state: State = np.full(n, -np.log(n)) if dense else Chances(n, ALPHA)
    rng, began = np.random.default_rng(0), 0.0
    for step in range(-warm, count):
        if step == 0:
            began = time.process_time()
        draws = sampler.draw(state, rng, PER_ROUND, purse)
        state = sampler.update(state, draws, worth[draws], purse)
    return (time.process_time() - began) / count


def compare(largest: int) -> None:
    print(f"a step of OSMD, K = {PER_ROUND}: draw and update, CPU time")
    n = 10**4
    while n <= largest:
        worth = np.random.default_rng(1).normal(0.2, 1.0, n)
        tree = steps(n, False, 3000, worth, warm=500)
        dense = steps(n, True, max(3, 10**7 // n), worth)
        print(f"  n = {n:>10,}: tree {1e6 * tree:7.0f} µs, dense {1e6 * dense:9.0f} µs, {dense / tree:8.1f} times")
        n *= 10


def compare_barred(n: int) -> None:
    worth = np.random.default_rng(1).normal(0.2, 1.0, n)
    print(f"the same at n = {n:,} where some cannot be asked")
    for barred in (1, 10, 100, 1000):
        tree, dense = steps(n, False, 300, worth, warm=50, barred=barred), steps(n, True, 5, worth, barred=barred)
        print(f"  {barred:>5,} of them: tree {1e6 * tree:7.0f} µs, dense {1e6 * dense:9.0f} µs")


def audited(place: Path) -> tuple[float, float]:
    """Seconds until the terms are read and checked, and rounds a second from there on."""
    began, entries = time.process_time(), RunFolder(place).entries()
    notary = Notary([next(entries)])
    opened = time.process_time()
    notary.take_all(entries)
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


def ledgers(n: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        place, alone = Path(parent) / "run", multiprocessing.get_context("spawn")
        began = time.process_time()
        make(place, rounds, n, PER_ROUND, "osmd")
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
    parser.add_argument("--largest", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=5000)
    given = parser.parse_args()
    compare(given.largest)
    compare_barred(min(10**6, given.largest))
    ledgers(min(10**6, given.largest), given.rounds)


if __name__ == "__main__":
    main()
