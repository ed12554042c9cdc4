"""Valuation against a straightforward loop over permutations, and the cost of every method as the market grows.

    python benchmarks/bench_valuation.py speed            # FedSV-PS and G-Shapley, equal in value; target: 10 times
    python benchmarks/bench_valuation.py growth           # n = 50 … 400; target: OSMD within 1.3 times uniform

The MNIST-shaped job of the paper (784 → 300 → 10, 400 samples a provider, batches of 5, K = 10) on synthetic data.
The straightforward versions below are what one would write first: a module, an optimizer, one model at a time.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from databazaar import OSMD, Arbiter, Consumer, LocalSGD, Provider, Uniform, build_model
from databazaar.randomness import draws_stream, oracle_key
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import Sampler
from databazaar.valuation import MaxPermutations
from databazaar.valuation.monte_carlo import Shuffle
from databazaar_experiments.fed_shapley import FedShapley
from databazaar_experiments.first_layer import FirstLayerFedShapley
from databazaar_experiments.g_shapley import GShapley, oracle_seed

ORACLE = LocalSGD(step=0.02, batch_size=5, momentum=0.1, steps=None)


def make_market(n: int, samples: int, rounds: int, per_round: int) -> tuple[Consumer, list[Provider]]:
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(10, 784))

    def draw(size: int, corrupted: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        y = rng.integers(10, size=size)
        x = prototypes[y] + 4.0 * rng.normal(size=(size, 784))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        bad = int(corrupted * size)
        y[:bad] = (y[:bad] + rng.integers(1, 10, size=bad)) % 10
        return x.astype(np.float32), y

    shares = [0.0] * (n // 10) + [0.2] * (n // 10) + [0.5] * (n // 10)
    shares += [0.9] * (n - len(shares))
    providers = [Provider(f"p{i}", data=draw(samples, share), oracle=ORACLE) for i, share in enumerate(shares)]
    model = build_model("mlp", [784], 10, hidden=[300])
    consumer = Consumer(
        model, rounds * per_round, holdout=draw(1000, 0.0), utility="negative-loss", per_round=per_round
    )
    return consumer, providers


# --- what one would write first -----------------------------------------------------------------------------------


class Straightforward:
    """One model, one optimizer, one provider and one utility at a time.

    With data loaders, as in bench_core.py, training and utility go through batches of 5 from a loader. Without them
    (`tight`), samples are sliced by hand and the utility is one pass over the hold-out.
    """

    def __init__(self, consumer: Consumer, providers: list[Provider], tight: bool) -> None:
        self.consumer, self.providers, self.tight = consumer, providers, tight
        assert isinstance(consumer.model, nn.Module) and consumer.holdout is not None
        self.model = copy.deepcopy(consumer.model)
        self.x, self.y = consumer.holdout

    def train(self, w: Tensor, index: int, round: int, seed: int) -> Tensor:
        """The provider's update: one epoch of mini-batch SGD."""
        provider = self.providers[index]
        x, y = provider.dataset
        assert isinstance(x, Tensor)
        nn.utils.vector_to_parameters(w.clone(), self.model.parameters())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.1)
        order = ORACLE.batches(len(x), oracle_key(seed, round, provider.id))
        loader = DataLoader(TensorDataset(x, y), batch_size=5, sampler=order.ravel().tolist())
        for x_batch, y_batch in ((x[b], y[b]) for b in order) if self.tight else loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x_batch), y_batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return nn.utils.parameters_to_vector(self.model.parameters()).detach() - w

    @torch.no_grad()
    def utility(self, w: Tensor) -> float:
        nn.utils.vector_to_parameters(w, self.model.parameters())
        size = len(self.x) if self.tight else 5
        total = 0.0
        for x, y in DataLoader(TensorDataset(self.x, self.y), size) if not self.tight else [(self.x, self.y)]:
            total += float(nn.functional.cross_entropy(self.model(x), y, reduction="sum"))
        return -total / len(self.x)

    def g_shapley(self, permutations: int, seed: int = 0) -> NDArray[np.float64]:
        n = len(self.providers)
        start, shuffle = self.consumer.initial_parameters(), Shuffle(n, seed, "g-shapley")
        values = np.zeros(n)
        for t in range(permutations):
            w, before = start, self.utility(start)
            for i in shuffle(t).tolist():
                w = w + self.train(w, i, 0, oracle_seed(seed, t))
                after = self.utility(w)
                values[i] += (after - before) / permutations
                before = after
        return values

    def fed_shapley(self, permutations: int, rounds: int, seed: int = 0) -> NDArray[np.float64]:
        n, k = len(self.providers), self.consumer.per_round
        values, w, sampler = np.zeros(n), self.consumer.initial_parameters(), Uniform(replacement=False)
        for t in range(rounds):
            roster = Roster.equal(n)
            round_budget = RoundBudget(len(roster), roster.prices)
            drawn = sampler.draw(sampler.init(roster, len(roster), k), draws_stream(seed, t), k, round_budget)
            updates = torch.stack([self.train(w, i, t, seed) for i in drawn.tolist()])
            shuffle = Shuffle(k, seed, f"fedsv round {t}")
            for s in range(permutations):
                prefix, before = w, self.utility(w)
                for i in shuffle(s):
                    prefix = prefix + updates[i]
                    after = self.utility(prefix)
                    values[drawn[i]] += (after - before) / permutations
                    before = after
            w = w + updates.mean(0)
        return values


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Wall time, and processor time, which other people's work on the machine disturbs less."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], Any]) -> tuple[Timing, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu), result


def speed(n: int, permutations: int, rounds: int, block: int, tight: bool) -> None:
    """Both sides make the same permutations, so that a last digit cannot end one of them early.

    The loop's G-Shapley does one permutation, in which the values are compared, and is charged for `block` of them.
    """
    consumer, providers = make_market(n, 400, rounds, 10)
    loop = Straightforward(consumer, providers, tight)
    loop.train(consumer.initial_parameters(), 0, 0, 0)  # torch loads its optimizers on first use
    kind = "tight: sliced by hand, the utility in one pass" if tight else "data loaders of batch 5, as in bench_core.py"
    print(
        f"n = {n}, K = 10, {torch.get_num_threads()} threads; seconds of wall time and of processor time; loop: {kind}"
    )
    print(f"{'':44}{'loop':>16}{'here':>16}{'times':>14}{'largest difference':>20}{'largest value':>15}")

    def line(
        name: str, slow: Timing, fast: Timing, times: int, expected: NDArray[np.float64], got: NDArray[np.float64]
    ) -> None:
        gap, size = np.abs(got - expected).max(), np.abs(expected).max()
        print(
            f"{name:44}{times * slow.wall:8.1f}{times * slow.cpu:8.1f}{fast.wall:8.1f}{fast.cpu:8.1f}"
            f"{times * slow.wall / fast.wall:7.1f}{times * slow.cpu / fast.cpu:7.1f}{gap:20.1e}{size:15.3f}",
            flush=True,
        )

    slow, expected = Timing.of(lambda: loop.fed_shapley(permutations, rounds))
    stop = MaxPermutations(permutations)
    fast, got = Timing.of(lambda: FirstLayerFedShapley(stop=stop, rounds=rounds).run(consumer, providers))
    line(f"FedSV-PS, {rounds} rounds of {permutations} permutations", slow, fast, 1, expected, got.values)
    slow, expected = Timing.of(lambda: loop.g_shapley(1))
    got = GShapley(stop=MaxPermutations(1)).run(consumer, providers)
    fast, _ = Timing.of(lambda: GShapley(stop=MaxPermutations(block), batch=block).run(consumer, providers))
    line(f"G-Shapley, {block} permutations", slow, fast, block, expected, got.values)


def growth(sizes: list[int], rounds: int, permutations: int) -> None:
    print(f"100 samples a provider, K = n/10, T = {rounds}; wall and processor seconds, best of 3 for market runs")
    print(f"G-Shapley: {permutations} permutations; FedSV-PS: the paper's rule, back-check 10 and 0.05")
    print(f"{'n':>5}{'uniform':>16}{'OSMD':>16}{'ratio':>14}{'G-Shapley':>16}{'FedSV-PS':>16}")
    for n in sizes:
        consumer, providers = make_market(n, 100, rounds, n // 10)
        samplers: dict[str, Sampler] = {"uniform": Uniform(replacement=False), "osmd": OSMD(eta=1.0, alpha=0.01)}
        runs: dict[str, list[Timing]] = {name: [] for name in samplers}
        for _ in range(3):
            for name, sampler in samplers.items():
                runs[name].append(Timing.of(Arbiter(consumer, providers, sampler).run)[0])
        uniform, osmd = (Timing(min(t.wall for t in ts), min(t.cpu for t in ts)) for ts in runs.values())
        print(f"{n:>5}{uniform.wall:8.2f}{uniform.cpu:8.2f}{osmd.wall:8.2f}{osmd.cpu:8.2f}", end="")
        print(f"{osmd.wall / uniform.wall:7.2f}{osmd.cpu / uniform.cpu:7.2f}", end="", flush=True)
        stop = MaxPermutations(permutations)
        for method in (GShapley(stop=stop), FedShapley(rounds=rounds)):
            spent, _ = Timing.of(partial(method.run, consumer, providers))
            print(f"{spent.wall:8.1f}{spent.cpu:8.1f}", end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "growth"], nargs="?", default="speed")
    parser.add_argument("--providers", type=int, nargs="+", default=None)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--permutations", type=int, default=None)
    parser.add_argument("--block", type=int, default=50, help="permutations of G-Shapley that advance side by side")
    parser.add_argument("--tight", action="store_true", help="against the tighter loop")
    given = parser.parse_args()
    if given.what == "speed":
        speed((given.providers or [100])[0], given.permutations or 50, given.rounds or 3, given.block, given.tight)
    else:
        growth(given.providers or [50, 100, 200, 400], given.rounds or 20, given.permutations or 10)
