"""Markets of very many providers: a step of the sampler beside the dense one, and a ledger opened, played and audited.

    .venv/bin/python benchmarks/bench_large_markets.py [--largest 10000000] [--rounds 5000]

Both samplers take the same draws and gains. Gains are per provider and of the size that `OSMD.from_theory` is made for,
so that some rise, most fall to the floor, and floors are reached and left all the time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from databazaar.ledger import Notary
from databazaar.roster import Purse
from databazaar.runs.folder import RunFolder
from databazaar.samplers import OSMD
from databazaar.samplers.large_osmd import Chances
from databazaar.samplers.protocol import State
from long_ledgers import make

ALPHA, PER_ROUND = 0.1, 10


def steps(n: int, dense: bool, count: int, worth: np.ndarray, warm: int = 0) -> float:
    """Seconds a step, which is a draw and what is learned from it."""
    sampler = OSMD(eta=2.0 / n, alpha=ALPHA)
    purse = Purse(10**12, np.ones(n, dtype=np.int64), known_range=(1, 1))
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
        dense = steps(n, True, max(3, 3 * 10**6 // n), worth)
        print(f"  n = {n:>10,}: tree {1e6 * tree:7.0f} µs, dense {1e6 * dense:9.0f} µs, {dense / tree:8.1f} times")
        n *= 10


def ledgers(n: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        began = time.process_time()
        make(Path(place) / "run", rounds, n, PER_ROUND, "osmd")
        played = time.process_time() - began
        run = RunFolder(Path(place) / "run")
        began = time.process_time()
        Notary([next(iter(run.entries()))])
        opening = time.process_time() - began
        began = time.process_time()
        audit = run.replay(record=False)
        audited = time.process_time() - began
        size = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert audit.ok, audit.message
    print(f"a ledger of {n:,} providers and {audit.rounds:,} rounds of {PER_ROUND}, {size / 2**20:.0f} MiB, CPU time")
    print(f"  made in {played:.1f} s; terms read and checked in {opening:.1f} s")
    print(f"  audited in {audited:.1f} s: {audit.rounds / (audited - opening):,.0f} rounds a second after the terms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--largest", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=5000)
    given = parser.parse_args()
    compare(given.largest)
    ledgers(min(10**6, given.largest), given.rounds)


if __name__ == "__main__":
    main()
