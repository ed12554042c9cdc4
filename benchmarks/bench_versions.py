"""Two versions of the library in one run: this checkout beside another, say of the commit before a redesign.

    git worktree add ../before 50f123c
    .venv/bin/python benchmarks/bench_versions.py ../before

Each version is a warm process of its own, and single pieces of work alternate between them, so that both see the same
machine. Printed is the least CPU time of each: one MNIST-shaped round of every engine (the market of bench_core.py,
with its scoring), and a whole run of the demo in memory with its report. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
WORK = ("loop", "stacked", "dual", "demo")

CHILD = """
import sys, time
folder = sys.argv[1]
sys.path[:0] = [f"{folder}/src", f"{folder}/benchmarks"]
import torch
torch.set_num_threads(1)
import bench_core
from databazaar import Ask, LoopEngine, VectorizedEngine

try:
    from databazaar.config.jobs import demo_job  # since the rooms of 0.2.0
    plain = {"stacks": ("stacked",)}
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
    "dual": VectorizedEngine(consumer.task, providers, cpu),
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

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", CHILD, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seconds: dict[str, list[float]] = {work: [] for work in WORK}
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
        self.seconds[work].append(float(self._read()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--times", type=int, default=12)
    given = parser.parse_args()
    before, now = Version(given.before.resolve()), Version(HERE)
    for turn in range(given.times):
        for work in WORK:
            for version in (before, now) if turn % 2 else (now, before):
                version.measure(work)
    print(f"{'':10}{'before':>10}{'now':>10}{'now/before':>12}")
    for work in WORK:
        old, new = min(before.seconds[work]), min(now.seconds[work])
        print(f"{work:10}{old:10.4f}{new:10.4f}{new / old:12.3f}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("bench_versions.py needs another checkout: see its first lines")
    else:
        main()
