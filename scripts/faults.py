"""Every I/O call of a small run, killed or failed in every way:

    python scripts/faults.py [FAULT …] [--calls 1-400] [--every N] [--jobs N] [--large]

A FAULT is a part of a fault's name, such as "killed" or "no space"; without any, all are played. For each the run must
come to its end with `bazaar run`, to the same hashes. Prints a table, and ends with 1 if a point did not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from io_faults import FAULTS, Call, Fault, Stage  # noqa: E402

Point = tuple[Fault, Call]


def play(stages: list[Stage], points: list[Point]) -> dict[Point, str | None]:
    """What went wrong at each point, if anything; one thread a stage."""
    waiting: SimpleQueue[Point | None] = SimpleQueue()
    for entry in [*points, *(None for _ in stages)]:
        waiting.put(entry)
    found: dict[Point, str | None] = {}

    def work(stage: Stage) -> None:
        while (point := waiting.get()) is not None:
            found[point] = wrong = stage.why_not(*point)
            if wrong is not None:
                fault, call = point
                print(f"{fault.name} call {call.number}, {call.kind} of {call.path}: {wrong}", flush=True)  # noqa: T201

    threads = [threading.Thread(target=work, args=(stage,)) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def table(found: dict[Point, str | None]) -> str:
    """Faults down, kinds of call across: how many points held of how many there are."""
    kinds = sorted({call.kind for _, call in found})
    lines = [["fault", *kinds, "all"]]
    for fault in FAULTS:
        points = Counter(call.kind for one, call in found if one is fault)
        held = Counter(call.kind for (one, call), wrong in found.items() if one is fault and wrong is None)
        if points:
            cells = [f"{held[kind]}/{points[kind]}" if points[kind] else "" for kind in kinds]
            lines.append([fault.name, *cells, f"{held.total()}/{points.total()}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("faults", nargs="*")
    given.add_argument("--calls", default="1-1000000")
    given.add_argument("--every", type=int, default=1, help="only every nth point")
    given.add_argument("--jobs", type=int, default=2)
    given.add_argument("--large", action="store_true", help="as if the model were large")
    asked = given.parse_args()
    chosen = [fault for fault in FAULTS if not asked.faults or any(part in fault.name for part in asked.faults)]
    first, last = map(int, asked.calls.split("-"))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(asked.jobs) as pool:  # each is a process that plays the run once
            stages = list(pool.map(lambda number: Stage(Path(folder) / str(number), asked.large), range(asked.jobs)))
        calls = [call for call in stages[0].calls if first <= call.number <= last]
        points = [(fault, call) for fault in chosen for call in calls if fault.hits(call)]
        found = play(stages, points[:: asked.every])
        for stage in stages:
            stage.close()
    print(table(found))  # noqa: T201
    held = sum(wrong is None for wrong in found.values())
    print(f"{held} of {len(found)} held, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 0 if held == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
