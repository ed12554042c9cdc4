"""A round whose updates lie in a file, beside the same round with all of them in memory.

.venv/bin/python benchmarks/bench_updates_in_a_file.py                    # 50 million parameters, 4 of 8 are asked
.venv/bin/python benchmarks/bench_updates_in_a_file.py --sampler memory   # gains `together` instead of `shapley`
python benchmarks/bench_updates_in_a_file.py --device cuda --side 7071    # 200 million, an NVIDIA GPU

On a GPU updates go to the host where it is full: another tensor leaves it no more than 6.2 copies. The two ways take
turns, so that the one with room also tells whether the GPU comes to the same bits twice. Memory is the GPU's there.
Needs torch and NumPy alone.

Each way runs in processes of its own, in turns. The one with a file is given too little memory by `ulimit -d`, as users
would meet it: the market finds that out by itself. `forgotten` is the same with a system that remembers nothing of the
file: it is synced, and dropped from the page cache, after every model that is formed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from databazaar import Arbiter, Consumer, LocalSGD, Memory, Provider, Thrifty
from databazaar.engines.room import FileRoom
from databazaar.learning.models import hash_vector
from databazaar.market.move import Move

WAYS = {"memory": "in memory", "file": "in a file", "forgotten": "in a file that is forgotten"}
WAYS_OF_A_GPU = {"memory": "in the GPU's memory", "file": "in the host's memory"}
LEFT = {"cpu": 5.5, "cuda": 6.2}
"""Copies of the parameters for which there is room where updates have none. CUDA graphs hold some more."""


def market(side: int, given: argparse.Namespace) -> Arbiter:
    rng = np.random.default_rng(0)

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(size=(count, side)).astype(np.float32), rng.integers(0, 2, count)

    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(side, side), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(side, 2))
    consumer = Consumer(model, holdout=rows(64), budget=given.rounds * given.asked, per_round=given.asked)
    providers = [Provider(f"p{i}", rows(64), LocalSGD(0.1, 16, steps=4)) for i in range(2 * given.asked)]
    sampler = Memory() if given.sampler == "memory" else Thrifty()
    return Arbiter(consumer, providers, sampler, engine=given.engine, device=given.device)


def status(what: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def forgetting() -> None:
    """From now on the file is out of memory whenever a model has been made of it."""
    rooms: list[FileRoom] = []
    begin, summed = FileRoom.__init__, Move.summed

    def begun(self: FileRoom, *given: Any) -> None:
        begin(self, *given)
        rooms.append(self)

    def forgotten(self: Move, *given: Any, **named: Any) -> torch.Tensor:
        model = summed(self, *given, **named)
        for room in rooms:
            os.fsync(room._file.fileno())
            room._mapped.madvise(mmap.MADV_DONTNEED)
            os.posix_fadvise(room._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return model

    FileRoom.__init__ = begun  # type: ignore[method-assign, assignment]
    Move.summed = forgotten  # type: ignore[method-assign]


def filled(device: str, left: int) -> torch.Tensor | None:
    """Leaves so many bytes: of the process, or of the GPU, for as long as the tensor lives."""
    if device == "cuda":
        return torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device=device)
    most = status("VmData:") + left
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    return None


def played(given: argparse.Namespace) -> None:
    """One way, in this process; prints what it took."""
    arbiter = market(given.side, given)
    width = len(arbiter.parameters)
    ballast: torch.Tensor | None = None
    if given.way != "memory":
        ballast = filled(given.device, int(LEFT[given.device] * 4 * width))
    if given.way == "forgotten":
        forgetting()
    before, peak, over = status("RssAnon:"), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            peak[0] = max(peak[0], status("RssAnon:"))

    threading.Thread(target=look, daemon=True).start()
    ends, work = [time.perf_counter()], time.process_time()
    arbiter.run(tell=lambda _: ends.append(time.perf_counter()))
    work = (time.process_time() - work) / (len(ends) - 1)
    over.set()
    rounds = [b - a for a, b in pairwise(ends)][1:]
    grown = peak[0] - before
    if given.device == "cuda":
        grown = torch.cuda.max_memory_allocated() - (0 if ballast is None else ballast.nbytes)
    found = {"width": width, "seconds": rounds, "work": work, "copies": grown / (4 * width)}
    print(json.dumps({**found, "model": hash_vector(arbiter.last_parameters)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--side", type=int, default=3535, help="of the four square layers")
    parser.add_argument("--asked", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", choices=["loop", "vectorized"], default="vectorized")
    parser.add_argument("--sampler", choices=["thrifty", "memory"], default="thrifty")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--way", choices=list(WAYS), help="this one alone, in this process")
    given = parser.parse_args()
    if given.way is not None:
        played(given)
        return
    ways = WAYS if given.device == "cpu" else WAYS_OF_A_GPU
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(given.repeats):
        for way, found in runs.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    width, models = runs["memory"][0]["width"], {one["model"] for found in runs.values() for one in found}
    print(f"{width:,} parameters, {given.asked} asked a round; medians, and the time of processors in brackets")
    for way, found in runs.items():
        seconds = [second for one in found for second in one["seconds"]]
        work, copies = statistics.median(one["work"] for one in found), max(one["copies"] for one in found)
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        print(
            f"{ways[way]:28} {statistics.median(seconds):6.2f} s a round ({spread}) [{work:.2f} s], {copies:.1f} copies"
        )
    print("the same model" if len(models) == 1 else f"OTHER MODELS: {models}")


if __name__ == "__main__":
    main()
