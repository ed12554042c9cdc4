"""Mutated messages, frames, files and ledgers: python scripts/fuzz.py [--count N] [--jobs N] [--seed S] [--only TARGET]

What reads them, and what each may raise, is in tests/helpers/fuzzing.py. Ends with 1, and shows the bytes, if one of
them ended in anything else, or took memory out of all proportion.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from fuzzing import Found, fuzz, told


def part(given: tuple[int, int, str]) -> tuple[Found, int]:
    """What one process found, and the most memory that it had, in kB."""
    return fuzz(*given), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--count", type=int, default=1_000_000)
    given.add_argument("--jobs", type=int, default=2)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--only", default="")
    asked = given.parse_args()
    began, outcomes, wrong, most = time.monotonic(), Counter[str](), [], 0
    parts = 10 * asked.jobs
    with Pool(asked.jobs) as pool:
        work = [(-(-asked.count // parts), parts * asked.seed + number, asked.only) for number in range(parts)]
        for found, memory in pool.imap_unordered(part, work):
            outcomes.update(found.outcomes)
            wrong += found.wrong
            most = max(most, memory)
    for one in wrong:
        print(told(one))  # noqa: T201
    for name in sorted({outcome.rpartition(":")[0] for outcome in outcomes}):
        refused, read = outcomes[f"{name}: refused"], outcomes[f"{name}: read"]
        print(f"{name:22}{refused:>10,} refused{read:>10,} read")  # noqa: T201
    total = outcomes.total() + len(wrong)
    seconds = time.monotonic() - began
    print(f"{total:,} mutants, {len(wrong)} wrong, at most {most // 1024} MB, {seconds:.0f} s")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
