"""Audit and report of a long ledger, each as a process of its own: seconds, CPU seconds and peak memory.

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


def measured(*command: str) -> str:
    """Seconds, CPU seconds and peak memory of a Python process. This one stays small: a child begins with its parent's
    peak."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    wall, cpu, peak = time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return f"{wall:7.1f} s {cpu:7.1f} s CPU {peak:6.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5_000)
    parser.add_argument("--providers", type=int, default=10)
    parser.add_argument("--per-round", type=int, default=2)
    parser.add_argument("--sampler", default="adaptive")
    parser.add_argument("--folder", type=Path, help="where the run lies, or is made; else it is thrown away")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "run"
        if not folder.exists():
            maker = str(Path(__file__).with_name("long_ledgers.py"))
            wanted = (given.rounds, given.providers, given.per_round, given.sampler)
            print("make   ", measured(maker, str(folder), *map(str, wanted)), flush=True)
            print(f"a ledger of {(folder / 'ledger.sqlite').stat().st_size / 2**20:.0f} MB")
        for command in ("audit", "report"):
            print(f"{command:7}", measured("-m", "databazaar", command, str(folder)), flush=True)


if __name__ == "__main__":
    main()
