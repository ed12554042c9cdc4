"""What a round costs with a defence, as a ratio in one run. Nothing here is a test; run it on a quiet machine:

    python benchmarks/bench_defence.py

The rounds of the paper's MNIST market (bench_core.py: 10 providers × 400 samples, 784 → 300 → 10, batches of 5, 1,000
hold-out samples; the default sampler, at most ten draws), played without a defence and with each, in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

import torch

from bench_core import market
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.inspection.memory import Memory
from databazaar.market.loop import play


def seconds_an_access(defence: str, rounds: int) -> tuple[float, float]:
    """Of accesses, and not of rounds: the same money is spent, in rounds of different lengths. And the bytes that the
    watch keeps for a provider."""
    consumer, providers = market()
    arbiter = Arbiter(replace(consumer, budget=10 * rounds), providers, defence=defence)
    run = arbiter.begin(Accounts(arbiter.rules))
    begun = time.perf_counter()
    play(run, arbiter.engine)
    seconds = (time.perf_counter() - begun) / (10 * rounds)
    of_providers = (run.state.watch[name] for name in Memory.of({}, 0, 0).arrays() if run.state.watch)
    return seconds, sum(array.nbytes for array in of_providers) / len(providers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    seconds_an_access("standard", 2)  # warm
    for _ in range(given.times):
        for defence in ("none", "standard", "strict"):
            found.setdefault(defence, []).append(seconds_an_access(defence, given.rounds))
    plain = min(found["none"])[0]
    sys.stdout.write(f"{torch.get_num_threads()} threads, best of {given.times}, milliseconds for an access\n")
    for defence, runs in found.items():
        seconds, size = min(runs)
        sys.stdout.write(
            f"{defence:10}{1000 * seconds:8.2f}{seconds / plain:8.2f} times{size:10,.0f} bytes a provider\n"
        )


if __name__ == "__main__":
    main()
