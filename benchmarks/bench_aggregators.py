"""What robust aggregators cost: one move from ten updates, in means of the same numbers in the same run.

Beside it, in means too, what the models of `shapley` gains cost for the same round: one product for the mean, and for
every other rule 2 × 10 moves.

    python benchmarks/bench_aggregators.py [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from databazaar.aggregators import (
    Aggregator,
    CentredClipping,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    TrimmedMean,
)
from databazaar.engines import Replies
from databazaar.ledger import Drawn
from databazaar.roster import RoundBudget
from databazaar.training import Lesson
from databazaar.training.averaging import AGGREGATOR, Proposed
from databazaar.training.parameters import Parameters

RULES: list[Aggregator] = [Mean(), Median(), TrimmedMean(), Krum(), GeometricMedian(), CentredClipping()]
ROWS, WIDTHS = 10, (7_850, 1_000_000)


def best_of(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Seconds of the fastest of so many, once warm."""
    best = float("inf")
    for number in range(times + 1):
        begun = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = best if number == 0 else min(best, time.perf_counter() - begun)
    return best


def lesson_of(rule: Aggregator, updates: Tensor, drawn: Drawn) -> Lesson:
    params = torch.zeros_like(updates[0])
    memory = {AGGREGATOR: rule.init(params)}
    return Lesson(Parameters(params), memory, 0.0, None, drawn, Replies(updates, {}), round=0, gains="shapley")


def table(times: int, device: torch.device) -> None:
    drawn = Drawn(np.arange(ROWS), np.ones(ROWS), RoundBudget(ROWS, np.ones(ROWS, dtype=np.int64)))
    print(f"{device}, {torch.get_num_threads()} threads, best of {times} once warm; in means of the same updates")
    print(f"{'':40}" + "".join(f"{f'[{ROWS}, {width:,}]':>28}" for width in WIDTHS))
    print(f"{'':40}" + f"{'move':>14}{'gains too':>14}" * len(WIDTHS))
    base: dict[int, float] = {}
    for rule in RULES:
        line = f"{rule!r:40}"
        for width in WIDTHS:
            updates = torch.randn(ROWS, width, generator=torch.Generator().manual_seed(0)).to(device)
            lesson = lesson_of(rule, updates, drawn)

            def move(rule: Aggregator = rule, lesson: Lesson = lesson) -> object:
                return rule.combine(lesson.memory[AGGREGATOR], lesson.replies.updates, 1.0)

            def gains(rule: Aggregator = rule, lesson: Lesson = lesson) -> object:
                return Proposed(rule, lesson, 1.0)

            seconds = best_of(move, times, device), best_of(gains, max(1, times // 5), device)
            base.setdefault(width, seconds[0])
            line += "".join(f"{part / base[width]:14.1f}" for part in seconds)
        print(line, flush=True)
    print("one mean takes " + " and ".join(f"{1e3 * base[width]:.3f} ms" for width in WIDTHS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    table(given.times, torch.device(given.device))
