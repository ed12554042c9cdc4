"""A round by the engine `ray` beside the engine `vectorized`: what Ray costs, and what a second worker brings.

    .venv/bin/python benchmarks/bench_ray.py
    .venv/bin/python benchmarks/bench_ray.py --sizes 0.24 5 --rounds 3

Prints seconds of a round: `vectorized` in one process, on one thread and on all; one row after the other in one
process, which is what workers compute; and `ray` on a cluster of this machine with one worker and with two. `overhead`
is what one worker takes longer than one row after the other in one process: sending parameters, updates and asks.
`gain` is how many times faster two workers are than one.

Needs two processors; nothing here is a test; run it on a quiet machine, where nobody else computes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from databazaar import LocalSGD, Provider, build_model
from databazaar.engines import Ask, Engine, Replies, VectorizedEngine
from databazaar.engines.ray_engine import RayEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Size:
    """A model, how many are asked in a round, and the samples of each."""

    hidden: tuple[int, ...]
    asked: int
    samples: int
    steps: int


SIZES = {
    "0.24": Size((300,), 10, 400, 16),
    "5": Size((2000, 1600), 10, 200, 6),
    "50": Size((6000, 6800, 600), 4, 64, 2),
}
"""By millions of parameters."""


def market(size: Size) -> tuple[Task, list[Provider]]:
    generator = torch.Generator().manual_seed(0)
    oracle = LocalSGD(0.05, batch_size=32, steps=size.steps)
    providers = [
        Provider(
            f"p{i}",
            (
                torch.randn(size.samples, 784, generator=generator),
                torch.randint(0, 10, (size.samples,), generator=generator),
            ),
            oracle,
        )
        for i in range(size.asked)
    ]
    return Task(build_model("mlp", [784], 10, hidden=size.hidden), cross_entropy), providers


def one_by_one(engine: Engine) -> Callable[[Ask], list[Replies]]:
    return lambda ask: [engine.query(Ask(ask.params, [i], ask.round, ask.seed)) for i in ask.providers]


def seconds(query: Callable[[Ask], object], params: torch.Tensor, asked: int, rounds: int) -> float:
    """The median of a round, after a first one that starts what is to be started."""
    taken = []
    for round in range(rounds + 1):
        began = time.perf_counter()
        query(Ask(params, list(range(asked)), round, 1))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def measure(size: Size, rounds: int) -> tuple[int, dict[str, float]]:
    task, providers = market(size)
    assert task.model is not None
    params = task.layout.flatten(task.model)
    found = {}
    for threads in dict.fromkeys((torch.get_num_threads(), 1)):  # one thread last, which stays so
        torch.set_num_threads(threads)
        local = VectorizedEngine(task, providers, CPU)
        found[f"vectorized, {threads} threads"] = seconds(local.query, params, size.asked, rounds)
    found["one by one"] = seconds(one_by_one(local), params, size.asked, rounds)
    for workers in (1, 2):
        engine = RayEngine(task, providers, workers=workers, wait=300.0)
        found[f"ray, {workers}"] = seconds(engine.query, params, size.asked, rounds)
        engine.close()
    return len(params), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    for name in arguments.sizes:
        torch.set_num_threads(threads)
        width, found = measure(SIZES[name], arguments.rounds)
        load = os.getloadavg()[0]
        print(f"{width:,} parameters, {SIZES[name].asked} providers a round (load average {load:.1f})")
        for what, taken in found.items():
            print(f"  {what:<24} {taken:8.3f} s")
        print(f"  overhead                 {found['ray, 1'] - found['one by one']:8.3f} s")
        print(f"  gain of a second worker  {found['ray, 1'] / found['ray, 2']:8.2f} times", flush=True)


if __name__ == "__main__":
    main()
