"""The bookkeeping of a round without training, against a bare SQLite commit of the same rows.

.venv/bin/python benchmarks/bench_bookkeeping.py
.venv/bin/python benchmarks/bench_bookkeeping.py --profile      # where the time goes

A round settles its replies, moves the sampler, hashes entries and model, draws and reserves the next round and commits.
After each, the very rows that it has written go into a second file of the same tables, with the same settings (WAL,
synchronous FULL), by `sqlite3` alone: one executemany, one update, one commit.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bookkept_rounds import Rounds

WARM = 30


class Bare:
    """A second file of the same tables, and the rows of another's last transaction."""

    def __init__(self, like: Path, path: Path) -> None:
        self.source, self.target = sqlite3.connect(like), sqlite3.connect(path)
        for (made,) in self.source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
            self.target.execute(made)
        self.target.execute("PRAGMA journal_mode = WAL")
        self.target.execute("PRAGMA synchronous = FULL")
        self.last = -1
        self.rows, self.state = self.next()
        self.target.execute("INSERT INTO bazaar_snapshots VALUES ('run', 0, x'', x'')")
        self.commit()

    def next(self) -> tuple[list[Any], Any]:
        """What was written since."""
        rows = self.source.execute("SELECT * FROM bazaar_entries WHERE seq > ? ORDER BY seq", (self.last,)).fetchall()
        state = self.source.execute("SELECT next_round, sampler, params FROM bazaar_snapshots").fetchone()
        self.source.rollback()
        self.last = rows[-1][1]
        return rows, state

    def commit(self) -> None:
        self.target.executemany("INSERT INTO bazaar_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self.rows)
        if self.state is not None:
            change = "UPDATE bazaar_snapshots SET next_round = ?, sampler = ?, params = ? WHERE run = 'run'"
            self.target.execute(change, self.state)
        self.target.commit()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--providers", type=int, default=100)
    parser.add_argument("--per-round", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, help="where to write; else among temporary files")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        place = Path(temporary)
        rounds = Rounds(place, given.parameters, providers=given.providers, per_round=given.per_round)
        bare, profile = Bare(place / "ledger.sqlite", place / "bare.sqlite"), cProfile.Profile()
        ours, theirs, sizes, cpu = [], [], [], []
        for _ in range(WARM + given.rounds):
            if given.profile:
                profile.enable()
            began, busy = time.perf_counter(), time.process_time()
            rounds.play()
            ours.append(time.perf_counter() - began)
            cpu.append(time.process_time() - busy)
            profile.disable()
            bare.rows, bare.state = bare.next()
            sizes.append(sum(len(str(field)) for row in bare.rows for field in row) + sum(map(len, bare.state[1:])))
            began = time.perf_counter()
            bare.commit()
            theirs.append(time.perf_counter() - began)
        round, commit = statistics.median(ours[WARM:]), statistics.median(theirs[WARM:])
        print(
            f"n = {given.providers}, K = {given.per_round}, {given.parameters:,} parameters, {given.rounds} rounds, "
            f"{len(bare.rows)} rows and {statistics.median(sizes) / 1000:.1f} kB each"
        )
        print(
            f"bookkeeping of a round {round * 1e3:7.3f} ms, of which CPU {statistics.median(cpu[WARM:]) * 1e3:.3f} ms"
        )
        print(f"a bare commit          {commit * 1e3:7.3f} ms")
        print(f"ratio                  {round / commit:7.2f}")
        if given.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
