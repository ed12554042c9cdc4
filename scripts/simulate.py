"""Plays whole markets over a simulated network, one a seed:

    python scripts/simulate.py [--seeds N] [--seed S] [--jobs N]

What must hold is in tests/helpers/simulated_market.py. A seed that fails is named, and `--seed S` repeats it exactly.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from simulated_market import simulate

COUNTED = ("rounds", "spent", "crashes", "delivered")


def play(seed: int) -> tuple[int, dict[str, int] | str]:
    """The seed, and what it counted or the traceback of what failed."""
    try:
        outcome = simulate(seed)
    except Exception:
        return seed, traceback.format_exc()
    return seed, {name: getattr(outcome, name) for name in COUNTED}


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--seeds", type=int, default=10_000)
    given.add_argument("--seed", type=int)
    given.add_argument("--jobs", type=int, default=2)
    asked = given.parse_args()
    seeds = range(asked.seeds) if asked.seed is None else [asked.seed]
    began, totals, failed = time.monotonic(), Counter[str](), []
    with Pool(min(asked.jobs, len(seeds))) as pool:
        for seed, found in pool.imap_unordered(play, seeds, chunksize=10):
            if isinstance(found, str):
                failed.append(seed)
                print(found, flush=True)  # noqa: T201
            else:
                totals.update(found)
    counts = ", ".join(f"{totals[name]:,} {name}" for name in COUNTED)
    held, seconds = len(seeds) - len(failed), time.monotonic() - began
    print(f"{held:,} of {len(seeds):,} seeds hold ({counts}), {seconds:.0f} s")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
