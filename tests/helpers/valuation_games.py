"""Games with a known answer, and small markets, shared by the tests of valuation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar import Consumer, LocalSGD, Provider
from databazaar.engines import Ask, LoopEngine
from databazaar.learning.oracles import FullGradient
from databazaar.valuation import Game

Vector = NDArray[np.float64]
CPU = torch.device("cpu")


@dataclass
class Known:
    name: str
    game: Game
    values: Vector


def names(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


def additive() -> Known:
    worth = np.array([3.0, -1.0, 0.0, 0.5, 2.0])
    return Known("additive", Game(names(5), lambda s: s @ worth), worth)


def glove(left: int = 2, right: int = 3) -> Known:
    """A pair of gloves is worth 1. Values by counting orders: the textbook's answer for two and three."""
    game = Game(names(left + right), lambda s: np.minimum(s[:, :left].sum(1), s[:, left:].sum(1)).astype(float))
    assert (left, right) == (2, 3)
    return Known("glove", game, np.array([39 / 60, 39 / 60, 14 / 60, 14 / 60, 14 / 60]))


def airport() -> Known:
    """A runway costs what its largest aeroplane needs; each stretch is shared by all who use it."""
    costs = np.array([1.0, 2.0, 2.0, 5.0, 9.0])
    stretches = np.diff(np.concatenate([[0.0], costs]))
    shares = np.cumsum(stretches / np.arange(5, 0, -1))
    return Known("airport", Game(names(5), lambda s: (s * costs).max(1)), shares)


def weighted_majority() -> Known:
    """Weights 4, 3, 2, 1 and a quota of 6: the Shapley–Shubik index."""
    weights = np.array([4, 3, 2, 1])
    game = Game(names(4), lambda s: (s @ weights >= 6).astype(float))
    return Known("weighted majority", game, np.array([5, 3, 3, 1]) / 12)


def known_games() -> list[Known]:
    return [additive(), glove(), airport(), weighted_majority()]


def table_game(table: Vector) -> Game:
    """The game whose worths stand in a table, coalition c at position c."""
    n = len(table).bit_length() - 1
    return Game(names(n), lambda s: table[s @ (1 << np.arange(n))])


def shapley_by_definition(table: Vector) -> Vector:
    """The formula, term by term in Python."""
    n = len(table).bit_length() - 1
    values = np.zeros(n)
    for i in range(n):
        for c in range(2**n):
            if not c >> i & 1:
                size = c.bit_count()
                weight = factorial(size) * factorial(n - size - 1) / factorial(n)
                assert np.isclose(weight, 1 / (n * comb(n - 1, size)))
                values[i] += weight * (table[c | 1 << i] - table[c])
    return values


def classification_market(n: int = 4, per_round: int = 3, budget: int = 30) -> tuple[Consumer, list[Provider]]:
    """Providers with more and more wrong labels."""
    rng = np.random.default_rng(7)
    rule = rng.normal(size=(5, 3))

    def draw(size: int, wrong: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        x = rng.normal(size=(size, 5)).astype(np.float32)
        y = (x @ rule).argmax(1)
        bad = int(wrong * size)
        y[:bad] = (y[:bad] + rng.integers(1, 3, size=bad)) % 3
        return x, y

    oracle = LocalSGD(step=0.1, batch_size=8)
    providers = [Provider(f"p{i}", data=draw(24 + i, i / n), oracle=oracle) for i in range(n)]
    consumer = Consumer("mlp", budget, holdout=draw(80, 0.0), utility="negative-loss", per_round=per_round)
    return consumer, providers


def regression_market(n: int = 4) -> tuple[Consumer, list[Provider]]:
    """Providers whose true parameters lie farther and farther from the consumer's."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=6)

    def draw(size: int, shift: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        x = rng.normal(size=(size, 6)).astype(np.float32)
        return x, (x @ (truth + shift) + 0.1 * rng.normal(size=size)).astype(np.float32)

    providers = [Provider(f"p{i}", data=draw(40, 0.7 * i), oracle=FullGradient()) for i in range(n)]
    consumer = Consumer("linear", 30, holdout=draw(60, 0.0), utility="negative-loss", per_round=min(3, n), step=0.1)
    return consumer, providers


def additive_market(gifts: list[float]) -> tuple[Consumer, list[Provider]]:
    """Provider i moves coordinate i by its gift and the utility is the sum: every method must give it its gift."""
    n = len(gifts)

    def oracle_of(i: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda w: np.eye(n)[i] * gifts[i]

    providers = [Provider(f"p{i}", oracle=oracle_of(i)) for i in range(n)]
    return Consumer(np.zeros(n), budget=n, per_round=n, utility=lambda w: float(w.sum())), providers


class Slow:
    """One provider, one model, one utility at a time."""

    def __init__(self, consumer: Consumer, providers: list[Provider]) -> None:
        self.consumer, self.n = consumer, len(providers)
        self.engine = LoopEngine(copy.deepcopy(consumer.task), providers, CPU)
        self.evaluator = consumer.evaluator(CPU)

    def update(self, w: torch.Tensor, i: int, round: int, seed: int) -> torch.Tensor:
        step = self.consumer.step
        assert isinstance(step, float)
        return step * self.engine.query(Ask(w, [i], round, seed)).updates[0]

    def utility(self, w: torch.Tensor) -> float:
        return float(self.evaluator.score(w[None]).utility[0])

    def coalition(self, members: list[int], rounds: int) -> float:
        w = self.consumer.initial_parameters()
        for t in range(rounds if members else 0):
            w = w + torch.stack([self.update(w, i, t, 0) for i in members]).mean(0)
        return self.utility(w)
