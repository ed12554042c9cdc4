"""The markets of bench_trust.py: five good providers and nine bad ones of three sorts, and places for who attacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.learning.oracles import LocalSGD
from databazaar.learning.task import Task
from databazaar.market.inspection.holdout_parts import halves
from databazaar.parties import Consumer, Provider
from databazaar.samplers import Sampler
from databazaar_experiments.attacks import Attack, Backdoor, Clones, Known, Trigger
from databazaar_experiments.attacks.known import outputs
from databazaar_experiments.attacks.market import attacked_arbiter, play_attacked

Rows = tuple[NDArray[Any], NDArray[Any]]
Sample = Callable[[int], Rows]
"""So many fresh rows, as the consumer would like them."""
PRICE, PER_ROUND, GOOD, HONEST = 10, 10, 5, 14
CLASSES = 10


@dataclass(frozen=True)
class Result:
    """What came of one market: everybody's pay as a share of the budget, and the model, delivered and last."""

    pay: dict[str, float]
    attackers: tuple[str, ...]
    accuracy: float
    last_accuracy: float
    trigger: float
    flagged: tuple[str, ...]
    rounds: int


@dataclass(frozen=True)
class Market:
    """Honest providers, those whose places attackers may take, and rows to judge by."""

    honest: Sequence[Provider]
    places: Sequence[Provider]
    holdout: Rows
    test: Rows
    budget: int
    trigger: Trigger

    def consumer(self, budget: int | None = None) -> Consumer:
        return Consumer("logistic", budget=budget or self.budget, per_round=PER_ROUND, holdout=self.holdout)

    def play(self, attack: Attack | None, seed: int, sampler: Sampler, leak: str = "", **rules: Any) -> Result:
        """Plays it with these attackers, who have seen what `leak` says of the hold-out; without any, the places stay
        empty. `rules` are for the arbiter."""
        consumer = self.consumer()
        if isinstance(attack, Backdoor):
            attack = replace(attack, trigger=self.trigger)
        everybody, places = [*self.honest, *self.places], [provider.id for provider in self.places]
        leaked = self.leaked(leak, seed) if leak else None
        made = attacked_arbiter(consumer, everybody, places, attack, leaked=leaked, seed=seed, sampler=sampler, **rules)
        found = play_attacked(*made)
        task, test = consumer.task, (torch.from_numpy(self.test[0]), torch.from_numpy(self.test[1]))
        return Result(
            pay={id: pay / self.budget for id, pay in found.pay.items()},
            attackers=found.attackers,
            accuracy=accuracy(task, found.delivered, test),
            last_accuracy=accuracy(task, found.last, test),
            trigger=self.trigger.success(task, found.delivered, test),
            flagged=found.flagged,
            rounds=found.rounds,
        )

    def leaked(self, what: str, seed: int) -> Rows:
        """The scoring part of the hold-out, or any half of its rows, or both parts."""
        (x, y), count = self.holdout, len(self.holdout[1])
        if what == "both":
            return x, y
        any_half = np.random.default_rng([seed, 3]).permutation(count)[: count // 2]
        rows = halves(count, seed).scoring if what == "scoring" else any_half
        return x[rows], y[rows]


def accuracy(task: Task, params: torch.Tensor, rows: tuple[torch.Tensor, torch.Tensor]) -> float:
    return float((outputs(task, params, rows[0]).argmax(1) == rows[1]).float().mean())


def wrong_labels(rng: np.random.Generator, rows: Rows, share: float) -> Rows:
    y = rows[1].copy()
    wrong = rng.random(len(y)) < share
    y[wrong] = (y[wrong] + rng.integers(1, CLASSES, wrong.sum())) % CLASSES
    return rows[0], y


def noisy(rng: np.random.Generator, rows: Rows, share: float) -> Rows:
    x, y = wrong_labels(rng, rows, share)
    return (x + x.std() * rng.normal(size=x.shape)).astype(np.float32), y


def shifted(rng: np.random.Generator, rows: Rows, share: float) -> Rows:
    x, y = rows
    moved = (x + share * 2 * x.std() * rng.normal(size=x.shape[1:])).astype(np.float32)
    return moved, np.where(rng.random(len(y)) < share / 2, (y + 1) % CLASSES, y)


@dataclass(frozen=True)
class Shape:
    """How good providers may differ: `sizes` are their rows, in turn; `shift` moves the inputs of each; `private` is
    the noise on their updates, in lengths of the update."""

    sizes: tuple[int, ...] = (100,)
    shift: float = 0.0
    private: float = 0.0


SHAPES = {
    "plain": Shape(),
    "shifted": Shape(shift=0.15),
    "small": Shape(sizes=(20,)),
    "sizes": Shape(sizes=(400, 15, 100, 30, 200)),
    "private-1": Shape(private=1.0),
    "private-3": Shape(private=3.0),
}


def logistic(seed: int, shape: Shape, places: int, bad_place: bool, data: str = "") -> Market:
    """Ten classes in twenty dimensions, which a linear model can tell apart in four rows of five; four more inputs say
    nothing and are small."""
    rng = np.random.default_rng(seed)
    weight = 3.0 * rng.normal(size=(24, CLASSES))
    weight[20:] = 0

    def sample(count: int) -> Rows:
        x = rng.normal(size=(count, 24)).astype(np.float32)
        x[:, 20:] *= 0.1
        return x, (x @ weight + rng.gumbel(size=(count, CLASSES))).argmax(1)

    holdout, test = sample(300), sample(3_000)
    honest, own = parties(rng, sample, LocalSGD(0.3, 16), shape, places, bad_place)
    return Market(honest, own, holdout, test, 120 * PER_ROUND * PRICE, Trigger(4, 3.0))


@cache
def _digits(folder: str) -> tuple[NDArray[Any], ...]:
    with np.load(Path(folder) / "mnist.npz") as file:
        return tuple(file[name] for name in ("x_train", "y_train", "x_test", "y_test"))


def mnist(seed: int, shape: Shape, places: int, bad_place: bool, data: str = "") -> Market:
    """Handwritten digits, told apart by a linear model."""
    rng = np.random.default_rng(seed)
    x_train, y_train, x_test, y_test = _digits(data)
    order = iter(np.split(rng.permutation(len(y_train)), len(y_train) // 5))

    def sample(count: int) -> Rows:
        rows = np.concatenate([next(order) for _ in range(-(-count // 5))])[:count]
        return (x_train[rows].reshape(count, -1) / 255).astype(np.float32), y_train[rows].astype(np.int64)

    tested = rng.permutation(len(y_test))[:3_000]
    test = (x_test[tested].reshape(3_000, -1) / 255).astype(np.float32), y_test[tested].astype(np.int64)
    holdout = sample(300)
    honest, own = parties(rng, sample, LocalSGD(0.1, 16), shape, places, bad_place)
    return Market(honest, own, holdout, test, 80 * PER_ROUND * PRICE, Trigger(56, 1.0))


MARKETS = {"logistic": logistic, "mnist": mnist}


def parties(
    rng: np.random.Generator, sample: Sample, oracle: LocalSGD, shape: Shape, places: int, bad_place: bool
) -> tuple[list[Provider], list[Provider]]:
    """The honest providers, good ones first, and those whose places may be taken: good ones, or with wrong labels."""

    def good(name: str, i: int) -> Provider:
        rows = shifted(rng, sample(shape.sizes[i % len(shape.sizes)]), shape.shift)
        return Provider(name, rows, oracle, price=PRICE)

    honest = [good(f"good-{i}", i) for i in range(GOOD)]
    for i in range(GOOD, HONEST):
        spoil = (wrong_labels, noisy, shifted)[i % 3]
        honest.append(Provider(f"bad-{i}", spoil(rng, sample(100), 0.5 + 0.4 * rng.random()), oracle, price=PRICE))
    own = [good(f"place-{k}", k) for k in range(places)]
    if bad_place:
        own = [replace(one, data=wrong_labels(rng, sample(100), 0.8)) for one in own]
    if shape.private:
        task = Consumer("logistic", budget=PER_ROUND, holdout=sample(300)).task
        private = Clones(count=1, noise=shape.private)
        honest[:GOOD] = private.join(Known(task, tuple(honest[:GOOD])))
        own = private.join(Known(task, tuple(own)))
    return honest, own
