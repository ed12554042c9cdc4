"""What a round of a large model costs beside its training: hash, file and commit, against one write of the parameters.

.venv/bin/python benchmarks/bench_snapshots.py                      # 50 million parameters, 200 MB
.venv/bin/python benchmarks/bench_snapshots.py --parameters 5000000 --database   # and as rows of the database

All are measured in turns, on the same disk, from the same numbers. A plain write is a new file, written and synced;
`in place` overwrites one that is there, as a round does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bookkept_rounds import Rounds
from databazaar.ledger import snapshot_files
from databazaar.vectors import hash_array


def write_new(path: Path, numbers: np.ndarray) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb", buffering=0) as file:
        write_all(file.fileno(), numbers)


def write_in_place(path: Path, numbers: np.ndarray) -> None:
    with path.open("r+b", buffering=0) as file:
        write_all(file.fileno(), numbers)


def write_all(descriptor: int, numbers: np.ndarray) -> None:
    rest, offset = numbers.view(np.uint8).data, 0
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count
    os.fsync(descriptor)


def hash_while_writing(path: Path, numbers: np.ndarray) -> None:
    """The least that a round with this hash can cost."""
    writer = threading.Thread(target=write_in_place, args=(path, numbers))
    writer.start()
    hash_array(numbers)
    writer.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--parameters", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where to write; else among temporary files")
    parser.add_argument("--database", action="store_true", help="also with the parameters in the database")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        place, numbers = Path(temporary), np.random.default_rng(0).random(given.parameters, dtype=np.float32)
        ways: dict[str, Callable[[], object]] = {
            "a plain write and sync": lambda: write_new(place / "new", numbers),
            "the same in place": lambda: write_in_place(place / "again", numbers),
            "SHA-256 alone": lambda: hash_array(numbers),
            "SHA-256 beside a write in place": lambda: hash_while_writing(place / "again", numbers),
        }
        write_new(place / "again", numbers)
        for name, improving in (("a round, the best so far", True), ("a round, the best is an earlier one", False)):
            (place / str(improving)).mkdir()
            ways[name] = Rounds(place / str(improving), given.parameters, improving=improving).play
        if given.database:
            (place / "database").mkdir()
            in_rows = Rounds(place / "database", given.parameters)

            def in_database() -> None:
                snapshot_files.LARGE, before = 2**62, snapshot_files.LARGE
                in_rows.play()
                snapshot_files.LARGE = before

            ways["a round, all in the database"] = in_database
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(3 + given.repeats):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                taken[name].append(time.perf_counter() - began)
        medians = {name: statistics.median(times[3:]) for name, times in taken.items()}
        plain, again = list(medians.values())[:2]
        print(f"{given.parameters:,} parameters, {numbers.nbytes / 1e6:.0f} MB, medians of {given.repeats}")
        print("beside each: how many plain writes that is, and how many in place")
        for name, seconds in medians.items():
            spread = f"{min(taken[name][3:]):.3f} to {max(taken[name][3:]):.3f}"
            print(f"{name:40} {seconds:6.3f} s ({spread})  {seconds / plain:5.2f}  {seconds / again:5.2f}")


if __name__ == "__main__":
    main()
