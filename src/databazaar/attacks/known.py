"""What an attacker has to work with, and what an attack is: providers that register in the place of honest ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, as_dataset
from databazaar.learning.oracles import LocalSGD, Oracle, compute_update
from databazaar.learning.task import Task
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
        object.__setattr__(self, "task", copy.deepcopy(self.task))  # nobody else's model is touched

    def rows(self, data: Any) -> Examples:
        """Rows as the model takes them."""
        x, y = as_dataset(data, "attack")
        return self.task.inputs(x), self.task.targets(y)

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
        self.rng = np.random.default_rng([known.seed, int(provider_tags([own.id])[0])])
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
        by_heart = LocalSGD(step=0.05, batch_size=len(rows[1]), epochs=passes, steps=None, optimizer="adam")
        return params + self.trained(by_heart, params, rows)

    def loss(self, params: Vector, rows: Examples) -> float:
        """The mean loss of these parameters."""
        task = self.known.task
        assert task.model is not None
        with torch.no_grad():
            named = task.layout.unflatten(torch.from_numpy(params))
            outputs = torch.func.functional_call(task.model.eval(), named, (rows[0],))
            return float(task.loss(outputs, rows[1]).mean())

    def noise(self, like: Vector, length: float) -> Vector:
        """A random direction of this length."""
        return scaled(self.rng.normal(size=like.shape).astype(like.dtype), length)


Answer = Callable[[Insider, Vector], Vector]
"""What an insider sends for the parameters that it is asked with."""


def impostor(insider: Insider, answer: Answer, **terms: Any) -> Provider:
    """A provider in the place of the insider's own that answers so; `terms` are what it registers differently."""

    def oracle(params: Vector) -> Vector:
        sent = answer(insider, params)
        insider.asked += 1
        insider.first = params if insider.first is None else insider.first
        insider.last = params
        return sent

    return replace(insider.own, data=None, oracle=oracle, **terms)


@dataclass(frozen=True)
class Alone:
    """An attack of which everybody who takes part does the same by itself: `answer` is all of it."""

    kind: ClassVar[str] = "alone"

    def join(self, known: Known) -> list[Provider]:
        return [impostor(Insider(known, own), self.answer) for own in known.own]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        raise NotImplementedError


def length(vector: Vector) -> float:
    return float(np.linalg.norm(vector.astype(np.float64)))


def scaled(vector: Vector, to: float) -> Vector:
    """The same direction at another length; nothing stays nothing."""
    now = length(vector)
    return vector * vector.dtype.type(to / now) if now else vector
