"""What an attacker has to work with, and what an attack is: providers that register in the place of honest ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs, NamedInputs, as_dataset
from databazaar.learning.models import caller
from databazaar.learning.oracles import LocalSGD, Oracle, compute_update
from databazaar.learning.task import Task
from databazaar.oracles import MOST_STEPS
from databazaar.parties import Provider
from databazaar.randomness import provider_tags

Vector = NDArray[Any]
WHOLE_KEYS = 2**63


@dataclass(frozen=True, eq=False)
class Known:
    """What attackers know before the first round.

    `own` are the honest providers whose place they take, with the data, oracles and prices that they could also have
    used honestly. `leaked` are rows of the hold-out that they have seen; None where they have seen none. `providers` is
    how many the market has in all. While a market runs they learn only the parameters that they are asked with.
    """

    task: Task
    own: tuple[Provider, ...]
    leaked: Any = None
    providers: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", self.task.copied())  # nobody else's model is touched

    def rows(self, data: Any) -> Examples:
        """Rows as the model takes them."""
        x, y = as_dataset(data, "attack")
        return self.task.inputs(x), self.task.targets(y)

    def rng(self, id: str) -> np.random.Generator:
        """All the randomness of one attacker."""
        return np.random.default_rng([self.seed, int(provider_tags([id])[0])])

    def secret(self) -> Examples:
        """The rows of the hold-out that have leaked."""
        if self.leaked is None:
            raise BazaarError("this attack needs rows of the hold-out that have leaked: there are none")
        return self.rows(self.leaked)


class Attack(Protocol):
    """One way to play against a market. Its settings are its variants."""

    kind: ClassVar[str]

    def join(self, known: Known) -> list[Provider]:
        """Who registers in the place of the honest providers."""
        ...


class Insider:
    """One attacker at work: its generator, its data, and the parameters that it was asked with before.

    `first` and `last` are the parameters of its first ask and of the one before this. Insiders that collude are given
    the same `memory`, in which they leave each other whatever they like.
    """

    def __init__(self, known: Known, own: Provider, memory: dict[str, Any] | None = None) -> None:
        self.known, self.own = known, own
        self.memory: dict[str, Any] = {} if memory is None else memory
        self.rng = known.rng(own.id)
        self.rows = None if own.data is None else known.rows(own.data)
        self.first: Vector | None = None
        self.last: Vector | None = None
        self.asked = 0

    def honest(self, params: Vector, rows: Examples | None = None) -> Vector:
        """What its data say, or the given rows: the update that it would send if it were honest."""
        oracle, rows = self.own.oracle, rows or self.rows
        if callable(oracle) and not isinstance(oracle, Oracle):
            return np.asarray(oracle(params.copy()), dtype=params.dtype)
        if oracle is None or rows is None:
            raise BazaarError(f"provider {self.own.id} keeps its data on its own premises: an attack needs them here")
        return self.trained(oracle, params, rows)

    def trained(self, oracle: Oracle, params: Vector, rows: Examples) -> Vector:
        key = int(self.rng.integers(WHOLE_KEYS))
        update = compute_update(oracle, self.known.task, rows, torch.from_numpy(params), self.asked, key)
        return update.numpy()

    def optimum(self, params: Vector, rows: Examples, passes: int = 200) -> Vector:
        """The parameters that these rows would have, learned by heart."""
        by_heart = LocalSGD(
            step=0.05, batch_size=min(len(rows[1]), MOST_STEPS), epochs=passes, steps=None, optimizer="adam"
        )
        return params + self.trained(by_heart, params, rows)

    def loss(self, params: Vector, rows: Examples) -> float:
        """The mean loss of these parameters."""
        found = outputs(self.known.task, torch.from_numpy(params), rows[0])
        return float(self.known.task.loss(found, rows[1]).mean())

    def noise(self, like: Vector, length: float) -> Vector:
        """A random direction of this length."""
        return scaled(self.rng.normal(size=like.shape).astype(like.dtype), length)


Answer = Callable[[Insider, Vector], Vector]
"""What an insider sends for the parameters that it is asked with."""


def impostor(insider: Insider, answer: Answer) -> Provider:
    """A provider in the place of the insider's own that answers so."""

    def oracle(params: Vector) -> Vector:
        sent = answer(insider, params)
        insider.asked += 1
        insider.first = params if insider.first is None else insider.first
        insider.last = params
        return sent

    return replace(insider.own, data=None, oracle=oracle)


@dataclass(frozen=True)
class Alone:
    """An attack of which everybody who takes part does the same by itself: `answer` is all of it."""

    kind: ClassVar[str] = "alone"

    def join(self, known: Known) -> list[Provider]:
        return [impostor(Insider(known, own), self.answer) for own in known.own]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        raise NotImplementedError


def outputs(task: Task, params: Tensor, x: Inputs) -> Tensor:
    """What the model says with these parameters."""
    if task.model is None:
        raise BazaarError("this attack needs a torch model: the consumer brought a plain vector")
    with torch.no_grad():
        return caller(task.model.eval())(task.layout.unflatten(params), x)


def classes_of(known: Known, own: Provider) -> int:
    """How many classes the model tells apart."""
    x, y = known.rows(own.dataset)
    if y.is_floating_point() or y.dim() != 1 or known.task.model is None:
        raise BazaarError("this attack needs a model that tells classes apart")
    found = outputs(known.task, known.task.layout.flatten(known.task.model), x[:1])
    return max(2, int(found.shape[-1]) if found.dim() == 2 else 2)


def together(one: Examples, other: Examples) -> Examples:
    """All rows of both."""
    return torch.cat([plain(one[0]), plain(other[0])]), torch.cat([one[1], other[1]])


def plain(x: Inputs) -> Tensor:
    """Inputs that are one tensor."""
    if isinstance(x, NamedInputs):
        raise BazaarError("this attack needs inputs without names: it puts something of its own among them")
    return x


def length(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def scaled(vector: Vector, to: float) -> Vector:
    """The same direction at another length; nothing stays nothing."""
    now = length(vector)
    return vector * (to / now) if now else vector
