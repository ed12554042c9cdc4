"""The simulated markets of bench_allocation.py: 40 providers of four groups of quality, at all sorts of prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.learning.oracles import FullGradient, LocalSGD, Oracle
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.loop import play
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.samplers import Sampler
from databazaar.training.parameters import vector_of

Rows = tuple[NDArray[Any], NDArray[Any]]
Floats = NDArray[np.float64]
PER_ROUND = 10


@dataclass(frozen=True)
class Market:
    """40 providers, ten of each of four groups, the best first; `test` says how wrong given parameters are."""

    data: Sequence[Rows]
    holdout: Rows
    test: Callable[[torch.Tensor], float]
    prices: Sequence[int]
    budget: int
    changes: Mapping[int, Sequence[tuple[int, int]]]
    oracle: Oracle
    model: Any = "logistic"
    step: float = 1.0

    def play(self, sampler: Sampler, seed: int) -> tuple[float, dict[str, int]]:
        """How wrong the delivered model is, and everybody's pay."""
        providers = [
            Provider(f"p{i}", rows, self.oracle, price=int(price), price_changes=self.changes.get(i, ()))
            for i, (rows, price) in enumerate(zip(self.data, self.prices, strict=True))
        ]
        consumer = Consumer(
            self.model,
            budget=self.budget,
            per_round=PER_ROUND,
            holdout=self.holdout,
            utility="negative-loss",
            step=self.step,
        )
        arbiter = Arbiter(consumer, providers, sampler, device="cpu", seed=seed)
        run = arbiter.begin(Accounts(arbiter.rules))
        play(run, arbiter.engine)
        return self.test(vector_of(run.state.best.model)), dict(run.accounts.book.pay)


Prices = Callable[[np.random.Generator, NDArray[np.int64]], Sequence[int]]
"""What each provider asks, given its group."""


def even(rng: np.random.Generator, groups: NDArray[np.int64]) -> Sequence[int]:
    return [20] * len(groups)


def logistic(
    seed: int,
    prices: Prices = even,
    budget: int = 6_000,
    wrong: Sequence[float] = (0, 0.2, 0.4, 0.6),
    one_good: bool = False,
    dearer_from: int | None = None,
) -> Market:
    """Two classes in 20 dimensions; the groups differ in how many of their labels are wrong."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=20)
    w *= 3 / np.linalg.norm(w)

    def rows(count: int, share: float) -> Rows:
        x = rng.normal(size=(count, 20)).astype(np.float32)
        y = (x @ w + rng.logistic(size=count) > 0).astype(np.int64)
        return x, np.where(rng.random(count) < share, 1 - y, y)

    groups = np.repeat(np.arange(4), 10)
    data = [rows(48, 0.0 if one_good and i == 0 else wrong[i // 10]) for i in range(40)]
    x, y = (torch.from_numpy(part) for part in rows(4_000, 0.0))

    def test(params: torch.Tensor) -> float:
        weight, bias = params[:40].view(2, 20), params[40:]
        return float(torch.nn.functional.cross_entropy(x @ weight.T + bias, y))

    asked = prices(rng, groups)
    changes = {} if dearer_from is None else {i: [(dearer_from, 10 * asked[i])] for i in range(10)}
    return Market(data, rows(150, 0.0), test, asked, budget, changes, LocalSGD(0.3, 16))


def mixture(seed: int) -> Market:
    """The paper's mixture regression with ten dimensions: four groups of which one is the consumer's."""
    rng = np.random.default_rng(seed)
    truths = [rng.uniform(0.5 * k, 0.5 * (k + 1), 10) for k in range(4)]

    def rows(count: int, truth: Floats) -> Rows:
        x = rng.normal(size=(count, 10))
        return x.astype(np.float32), (x @ truth + rng.normal(size=count)).astype(np.float32)

    linear = torch.nn.Linear(10, 1, bias=False)
    torch.nn.init.constant_(linear.weight, -1.0)
    data = [rows(20, truths[i // 10]) for i in range(40)]
    truth = torch.from_numpy(truths[0].astype(np.float32))
    return Market(
        data,
        rows(60, truths[0]),
        lambda params: float((params - truth).norm()),
        [20] * 40,
        12_000,
        {},
        FullGradient(),
        torch.nn.Sequential(linear),
        step=0.1,
    )


@cache
def _mnist(folder: str) -> tuple[NDArray[Any], ...]:
    with np.load(Path(folder) / "mnist.npz") as file:
        return tuple(file[name] for name in ("x_train", "y_train", "x_test", "y_test"))


def mnist(seed: int, folder: str, prices: Prices, budget: int = 8_000) -> Market:
    """Digits, of which the groups have 0, 30, 60 and 90 % wrong labels; test error, not loss."""
    x_train, y_train, x_test, y_test = _mnist(folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x_train))[: 40 * 60 + 300]
    x = (x_train[order].reshape(len(order), -1) / 255).astype(np.float32)
    y = y_train[order].astype(np.int64)
    groups = np.repeat(np.arange(4), 10)
    data = []
    for i, share in enumerate(np.array([0, 0.3, 0.6, 0.9])[groups]):
        labels = y[60 * i : 60 * (i + 1)].copy()
        spoilt = rng.random(60) < share
        labels[spoilt] = (labels[spoilt] + rng.integers(1, 10, spoilt.sum())) % 10
        data.append((x[60 * i : 60 * (i + 1)], labels))
    tested = rng.permutation(len(x_test))[:3_000]
    tx = torch.from_numpy((x_test[tested].reshape(3_000, -1) / 255).astype(np.float32))
    ty = torch.from_numpy(y_test[tested].astype(np.int64))

    def test(params: torch.Tensor) -> float:
        weight, bias = params[:7840].view(10, 784), params[7840:]
        return float(((tx @ weight.T + bias).argmax(1) != ty).float().mean())

    return Market(data, (x[2_400:], y[2_400:]), test, prices(rng, groups), budget, {}, LocalSGD(0.5, 20))


def chosen(*amounts: int) -> Prices:
    """Prices that have nothing to do with quality."""
    return lambda rng, groups: rng.choice(amounts, len(groups)).tolist()


def by_group(*amounts: int) -> Prices:
    return lambda rng, groups: np.array(amounts)[groups].tolist()


def log_uniform(rng: np.random.Generator, groups: NDArray[np.int64]) -> Sequence[int]:
    return [max(1, int(price)) for price in np.exp(rng.uniform(0, math.log(1_000), len(groups)))]


def first_dear(rng: np.random.Generator, groups: NDArray[np.int64]) -> Sequence[int]:
    return [500, *[5] * (len(groups) - 1)]


def markets(data: str | None) -> dict[str, Callable[[int], Market]]:
    """Every row of the table."""
    rows: dict[str, Callable[[int], Market]] = {
        "equal prices, logistic": logistic,
        "equal prices, mixture": mixture,
        "many cheap bad at 1, few good at 50": partial(
            logistic, prices=by_group(50, 1, 1, 1), budget=8_000, wrong=(0, 0.3, 0.5, 0.6)
        ),
        "one good at 500, rest mediocre at 5": partial(
            logistic, prices=first_dear, budget=10_000, wrong=(0.3, 0.35, 0.4, 0.45), one_good=True
        ),
        "prices 5 to 80 whatever the quality": partial(logistic, prices=chosen(5, 10, 20, 40, 80)),
        "best ten times dearer from round 10": partial(logistic, dearer_from=10),
        "prices 1 to 1,000": partial(logistic, prices=log_uniform, budget=20_000),
    }
    if data is not None:
        rows["MNIST, dear is good"] = partial(mnist, folder=data, prices=by_group(80, 40, 20, 10))
        rows["MNIST, prices 10 to 80 whatever"] = partial(mnist, folder=data, prices=chosen(10, 20, 40, 80))
        rows["MNIST, equal prices"] = partial(mnist, folder=data, prices=even, budget=6_000)
    return rows
