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
from databazaar.market.driver import play


def seconds_a_round(defence: str, rounds: int) -> tuple[float, int]:
    """Of accesses, and not of rounds: the same money is spent, in rounds of different lengths."""
    consumer, providers = market()
    arbiter = Arbiter(replace(consumer, budget=10 * rounds), providers, defence=defence)
    run = arbiter.begin(Accounts(arbiter.rules))
    begun = time.perf_counter()
    play([run], arbiter.engine)
    return (time.perf_counter() - begun) / (10 * rounds), run.state.round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    seconds_a_round("standard", 2)  # warm
    for _ in range(given.times):
        for defence in ("none", "standard", "strict"):
            found.setdefault(defence, []).append(seconds_a_round(defence, given.rounds)[0])
    plain = min(found["none"])
    sys.stdout.write(f"{torch.get_num_threads()} threads, best of {given.times}, milliseconds for an access\n")
    for defence, seconds in found.items():
        sys.stdout.write(f"{defence:10}{1000 * min(seconds):8.2f}{min(seconds) / plain:8.2f} times\n")


if __name__ == "__main__":
    main()
