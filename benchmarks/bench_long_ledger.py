"""Audit and report of a long ledger, each as a process of its own: seconds and peak memory.

    .venv/bin/python benchmarks/bench_long_ledger.py --rounds 100000
    .venv/bin/python benchmarks/bench_long_ledger.py --rounds 200 --providers 100000 --per-round 10
    .venv/bin/python benchmarks/bench_long_ledger.py --rounds 100000 --folder /tmp/long    # made once, measured again
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measured(*command: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a Python process. This one stays small: a child begins with its parent's peak."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--providers", type=int, default=10)
    parser.add_argument("--per-round", type=int, default=2)
    parser.add_argument("--sampler", default="thrifty")
    parser.add_argument("--folder", type=Path, help="where the run lies, or is made; else it is thrown away")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "run"
        if not folder.exists():
            maker = str(Path(__file__).with_name("long_ledgers.py"))
            wanted = (given.rounds, given.providers, given.per_round, given.sampler)
            seconds, peak = measured(maker, str(folder), *map(str, wanted))
            size = (folder / "ledger.sqlite").stat().st_size / 2**20
            print(f"make       {seconds:7.1f} s {peak:6.0f} MB, a ledger of {size:.0f} MB")
        for command in ("audit", "report"):
            seconds, peak = measured("-m", "databazaar", command, str(folder))
            print(f"{command:10} {seconds:7.1f} s {peak:6.0f} MB")


if __name__ == "__main__":
    main()
