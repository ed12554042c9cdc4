"""Two versions of the library in one run: this checkout beside another, say of the commit before a redesign.

    git worktree add ../before 50f123c
    .venv/bin/python benchmarks/bench_versions.py ../before
    .venv/bin/python benchmarks/long_ledgers.py large 5000 1000000 10 osmd
    .venv/bin/python benchmarks/bench_versions.py ../before --ledger large

Each version is a warm process of its own, and single pieces of work alternate between them, so that both see the same
machine. Printed are the least and the median CPU time of each: one MNIST-shaped round of every engine (the market of
bench_core.py, with its scoring), and a whole run of the demo in memory with its report; with `--ledger`, instead, a
round in the audit of that run, after its terms. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
WORK = ("loop", "stacked", "dual", "demo")

AUDITING = """
import sys
from pathlib import Path
folder, ledger = sys.argv[1:]
sys.path[:0] = [f"{folder}/src", f"{folder}/benchmarks"]
import bench_large_markets

print("ready", flush=True)
for line in sys.stdin:
    print(1 / bench_large_markets.audited(Path(ledger))[1], flush=True)
"""

PLAYING = """
import sys, time
folder = sys.argv[1]
sys.path[:0] = [f"{folder}/src", f"{folder}/benchmarks"]
import torch
torch.set_num_threads(1)
import bench_core
from databazaar.engines import Ask, LoopEngine, VectorizedEngine

try:
    from databazaar.config.jobs import demo_job  # since the rooms of 0.2.0
    plain = {}
except ImportError:
    from databazaar.jobs import demo_job
    plain = {"dual": False}
cpu = torch.device("cpu")
consumer, providers = bench_core.market()
start, evaluator = consumer.initial_parameters(), consumer.evaluator(cpu)
ask = Ask(start, list(range(len(providers))), round=0, seed=0)
engines = {
    "loop": LoopEngine(consumer.task, providers, cpu),
    "stacked": VectorizedEngine(consumer.task, providers, cpu, **plain),
}
arbiter = demo_job(500, 0).arbiter()

def once(work):
    if work == "demo":
        return arbiter.run()
    updates = engines[work].query(ask).updates
    return evaluator.score(torch.cat([start + updates, start[None]]))

for work in (*engines, "demo"):
    once(work)
print("ready", flush=True)
for line in sys.stdin:
    begun = time.process_time()
    once(line.strip())
    print(time.process_time() - begun, flush=True)
"""


class Version:
    """A warm process with one version of the library."""

    def __init__(self, folder: Path, ledger: Path | None) -> None:
        given = [PLAYING, str(folder)] if ledger is None else [AUDITING, str(folder), str(ledger)]
        command = [sys.executable, "-c", *given]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds: dict[str, list[float]] = {}
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit("one of the versions stopped: see above")
        return line

    def measure(self, work: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        self.seconds.setdefault(work, []).append(float(self._read()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--ledger", type=Path, help="a run's folder, to be audited instead")
    given = parser.parse_args()
    before, now = (Version(folder, given.ledger) for folder in (given.before.resolve(), HERE))
    all_work = WORK if given.ledger is None else ("audit",)
    for turn in range(given.times):
        for work in all_work:
            for version in (before, now) if turn % 2 else (now, before):
                version.measure(work)
    for found in (min, statistics.median):
        print(f"{found.__name__:10}{'before':>10}{'now':>10}{'now/before':>12}")
        for work in all_work:
            old, new = found(before.seconds[work]), found(now.seconds[work])
            print(f"{work:10}{old:10.6f}{new:10.6f}{new / old:12.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("bench_versions.py needs another checkout: see its first lines")
    else:
        main()
