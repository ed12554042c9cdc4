"""Markets of very many providers: a step of the sampler beside the dense one, and a ledger opened, audited and told.

    .venv/bin/python benchmarks/bench_large_markets.py [--largest 10000000] [--rounds 5000]

Both samplers take the same draws and gains, in turns, some steps each; medians of the turns, since a machine that
others share is not always as fast. Gains are per provider, and η is such that a gain of one moves log p of somebody
who has had none by one of `SHIFTS`: by 0.2, where nobody comes to the floor before many draws; or by 2, where nearly
all soon are on it, and who leaves it is drawn again and again. A second comparison bars some from being asked, by their
prices. Audit and report are measured in a process of their own each, the audit several times.
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

ALPHA, PER_ROUND, AUDITS, TURNS = 0.1, 10, 5, 11
SHIFTS = 0.2, 2.0
Found = TypeVar("Found")


class Steps:
    """A sampler at work: each step is a draw and what is learned from it."""

    def __init__(self, n: int, dense: bool, worth: np.ndarray, shift: float = SHIFTS[0], barred: int = 0) -> None:
        self.sampler, quotes = OSMD(eta=shift * PER_ROUND / n, alpha=ALPHA), np.ones(n, dtype=np.int64)
        dear = np.sort(np.random.default_rng(2).permutation(n)[:barred])
        quotes[dear] = 9
        self.purse = Purse(10**12, quotes, most_per_access=8)
        self.state: State = np.full(n, -np.log(n)) if dense else Chances(n, ALPHA)
        self.rng, self.worth = np.random.default_rng(0), worth

    def seconds(self, count: int) -> float:
        """A step takes so long, in the mean of so many more."""
        began = time.process_time()
        for _ in range(count):
            draws = self.sampler.draw(self.state, self.rng, PER_ROUND, self.purse)
            self.state = self.sampler.update(self.state, draws, self.worth[draws], self.purse)
        return (time.process_time() - began) / count


def in_turns(tree: Steps, dense: Steps, steps: int, dense_steps: int) -> tuple[float, float]:
    """Seconds a step of either: the medians of turns. What the first steps prepare is not counted."""
    tree.seconds(steps)
    dense.seconds(1)
    turns = [(tree.seconds(steps), dense.seconds(dense_steps)) for _ in range(TURNS)]
    return statistics.median(turn[0] for turn in turns), statistics.median(turn[1] for turn in turns)


def compare(largest: int) -> None:
    for shift in SHIFTS:
        print(f"a step of OSMD, K = {PER_ROUND}: draw and update, CPU time; a gain of 1 moves log p by {shift}")
        n = 10**4
        while n <= largest:
            worth = np.random.default_rng(1).normal(0.2, 1.0, n)
            sides = Steps(n, False, worth, shift), Steps(n, True, worth, shift)
            tree, dense = in_turns(*sides, 300, max(1, 10**6 // n))
            print(f"  n = {n:>10,}: tree {1e6 * tree:7.0f} µs, dense {1e6 * dense:9.0f} µs, {dense / tree:8.1f} times")
            n *= 10


def compare_barred(n: int) -> None:
    worth = np.random.default_rng(1).normal(0.2, 1.0, n)
    print(f"the same at n = {n:,} where some cannot be asked")
    for barred in (1, 10, 100, 1000):
        sides = Steps(n, False, worth, barred=barred), Steps(n, True, worth, barred=barred)
        tree, dense = in_turns(*sides, 50, 1)
        print(f"  {barred:>5,} of them: tree {1e6 * tree:7.0f} µs, dense {1e6 * dense:9.0f} µs")


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
