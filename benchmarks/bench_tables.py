"""Reading wide tables, as ratios in one run. Nothing here is a test; run it on a quiet machine:

    .venv/bin/python benchmarks/bench_tables.py

Each table is read once as it is and once twice as wide. Where reading is linear in the width, the ratio is about 2.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from databazaar.data.tables import read_table

SHAPES = ((1, 50_000), (20, 10_000), (2_000, 100))
REPEATS = 3


def write(path: Path, rows: int, columns: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 9, (rows, columns))
    lines = [",".join(f"c{place}" for place in range(columns)), *(",".join(map(str, row)) for row in numbers)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def seconds(path: Path) -> float:
    """The best of a few."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        read_table(path)
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for rows, columns in SHAPES:
            took = []
            for width in (columns, 2 * columns):
                path = Path(folder) / f"{rows}x{width}.csv"
                write(path, rows, width)
                took.append(seconds(path))
            print(
                f"{rows:>5,} × {columns:>7,}: {took[0]:6.2f} s; {rows:>5,} × {2 * columns:>7,}: {took[1]:6.2f} s; "
                f"ratio {took[1] / took[0]:.2f}"
            )


if __name__ == "__main__":
    main()
