"""Speed of the core, as ratios in one run. Nothing here is a test; run it on a quiet machine:

    .venv/bin/python benchmarks/bench_core.py

1. One round of the paper's MNIST market (10 providers × 400 samples, 784 → 300 → 10, batches of 5, momentum 0.1,
   1,000 hold-out samples): a straightforward loop with a data loader, an optimizer object and a utility in batches of
   5, against the engines of this package. All do the same arithmetic; the largest difference is printed.
2. The sampler's step for a million providers against one NumPy sort of a million floats.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from databazaar import OSMD, Consumer, LocalSGD, Provider, build_model
from databazaar.engines import Ask, LoopEngine, VectorizedEngine
from databazaar.learning.inputs import Examples
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import Layout
from databazaar.randomness import oracle_key, sample_order
from databazaar.roster import Roster, RoundBudget
from databazaar_experiments.stacks.dual import DualSGD

ORACLE = LocalSGD(step=0.02, batch_size=5, momentum=0.1, steps=None)
PROVIDERS, SAMPLES, HOLDOUT = 10, 400, 1000


def market() -> tuple[Consumer, list[Provider]]:
    torch.manual_seed(0)
    centres = torch.randn(10, 784)

    def samples(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, 10, (count,))
        x = centres[y] + 2 * torch.randn(count, 784)
        return x / x.norm(dim=1, keepdim=True), y

    consumer = Consumer(
        build_model("mlp", [784], 10, hidden=[300]), budget=10, holdout=samples(HOLDOUT), utility="negative-loss"
    )
    return consumer, [Provider(f"p{i}", samples(SAMPLES), ORACLE) for i in range(PROVIDERS)]


def straightforward(consumer: Consumer, providers: list[Provider]) -> tuple[Tensor, list[float]]:
    """What one writes first: a copy of the model, a data loader and an optimizer for each provider."""
    assert isinstance(consumer.model, nn.Module) and consumer.holdout is not None
    updates, utilities = [], []
    layout = Layout.of(consumer.model)
    start = layout.flatten(consumer.model)
    holdout = DataLoader(_tensors(consumer.holdout), batch_size=5)
    for provider in providers:
        model = copy.deepcopy(consumer.model).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.1)
        order = sample_order(oracle_key(0, 0, provider.id), SAMPLES).tolist()
        for x, y in DataLoader(_tensors(provider.dataset), batch_size=5, sampler=order):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        updates.append(layout.flatten(model) - start)
        utilities.append(_utility(model, holdout))
    utilities.append(_utility(copy.deepcopy(consumer.model), holdout))
    return torch.stack(updates), utilities


def _tensors(examples: Examples) -> TensorDataset:
    x, y = examples
    assert isinstance(x, Tensor)
    return TensorDataset(x, y)


@torch.no_grad()
def _utility(model: nn.Module, holdout: DataLoader[tuple[Tensor, ...]]) -> float:
    model.eval()
    return -sum(float(cross_entropy(model(x), y).sum()) for x, y in holdout) / HOLDOUT


def best_of(work: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def rounds(times: int) -> None:
    consumer, providers = market()
    start = consumer.initial_parameters()
    ask = Ask(start, list(range(PROVIDERS)), round=0, seed=0)
    cpu = torch.device("cpu")
    evaluator = consumer.evaluator(cpu)

    def round_of(engine: LoopEngine | VectorizedEngine) -> tuple[Tensor, list[float]]:
        updates = engine.query(ask).updates
        return updates, evaluator.score(torch.cat([start + updates, start[None]])).utility.tolist()

    loop = LoopEngine(consumer.task, providers, cpu)
    stacked = VectorizedEngine(consumer.task, providers, cpu)
    dual = VectorizedEngine(consumer.task, providers, cpu, stacks=[DualSGD])
    ways: dict[str, Callable[[], tuple[Tensor, list[float]]]] = {
        "straightforward loop": lambda: straightforward(consumer, providers),
        "engine loop": lambda: round_of(loop),
        "engine vectorized, without the dual form": lambda: round_of(stacked),
        "engine vectorized": lambda: round_of(dual),
    }
    print(f"One MNIST-shaped round, {torch.get_num_threads()} threads, best of {times} once warm")
    print(f"{'':45}{'seconds':>9}{'times':>8}{'largest difference of':>25}")
    print(f"{'':62}{'updates':>12}{'utilities':>12}")
    reference = straightforward(consumer, providers)
    base = None
    for name, work in ways.items():
        updates, utilities = work()
        seconds = best_of(work, times)
        base = base or seconds
        gaps = float((updates - reference[0]).abs().max()), np.abs(np.subtract(utilities, reference[1])).max()
        print(f"{name:45}{seconds:9.3f}{base / seconds:8.1f}{gaps[0]:12.1e}{gaps[1]:12.1e}", flush=True)


def sampler(times: int, n: int = 1_000_000, per_round: int = 100) -> None:
    rng = np.random.default_rng(0)
    floats = rng.random(n)
    osmd = OSMD(eta=1.0, alpha=0.01)
    state = np.log(rng.dirichlet(np.ones(n)) * 0.98 + 0.02 / n)
    round_budget = RoundBudget(n, Roster.equal(n).prices)
    draws = osmd.draw(state, rng, per_round, round_budget)
    gains = rng.normal(scale=1e-6, size=per_round)
    sort = best_of(lambda: np.sort(floats), times)
    update = best_of(lambda: osmd.update(state, draws, gains, round_budget), times)
    draw = best_of(lambda: osmd.draw(state, rng, per_round, round_budget), times)
    print(f"\nThe sampler at n = {n:,}, best of {times}")
    print(f"np.sort of {n:,} floats {sort * 1e3:7.1f} ms")
    print(f"OSMD.update             {update * 1e3:7.1f} ms, {update / sort:.1f} sorts")
    print(f"OSMD.draw               {draw * 1e3:7.1f} ms, {draw / sort:.1f} sorts")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    rounds(given.times)
    sampler(3 * given.times)
