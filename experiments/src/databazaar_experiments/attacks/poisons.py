"""Real data, but not what they say: louder, turned round, with wrong labels, by turns, or only when it suits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.parties import Provider
from databazaar_experiments.attacks.known import Alone, Insider, Known, Vector, classes_of

FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""What a line search tries."""


@dataclass(frozen=True)
class Boost(Alone):
    """An honest update, made longer; without a factor, as long as is best on its own data."""

    factor: float | None = 2.0
    kind: ClassVar[str] = "boost"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        honest = insider.honest(params)
        return honest * (self.factor or _best_factor(insider, params, honest))


def _best_factor(insider: Insider, params: Vector, honest: Vector) -> float:
    rows = insider.rows
    if rows is None:
        raise BazaarError(f"provider {insider.own.id} answers by a callable: without data there is no line to search")
    return min(FACTORS, key=lambda factor: insider.loss(params + honest * factor, rows))


@dataclass(frozen=True)
class Sign(Alone):
    """The opposite of its update."""

    factor: float = 1.0
    kind: ClassVar[str] = "sign"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        return insider.honest(params) * -self.factor


@dataclass(frozen=True)
class Alternate(Alone):
    """Good and poisonous by turns: honest, then `factor` times the opposite."""

    factor: float = 1.0
    kind: ClassVar[str] = "alternate"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        honest = insider.honest(params)
        return honest if insider.asked % 2 == 0 else honest * -self.factor


@dataclass(frozen=True)
class Flip:
    """Honest work on rows whose classes are turned round: the first is called the last."""

    kind: ClassVar[str] = "flip"

    def join(self, known: Known) -> list[Provider]:
        flipped = []
        for own in known.own:
            x, y = own.dataset
            last = classes_of(known, own) - 1
            flipped.append(replace(own, data=(x, last - known.task.targets(y))))
        return flipped


@dataclass(frozen=True)
class Selective(Alone):
    """Answers only when its update seems to help: on leaked rows where it has some, else on a third of its own that it
    holds back for this. Of those it sends `best`, the part that helps most by what it has seen so far."""

    best: float = 1.0
    kind: ClassVar[str] = "selective"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        train, check = _parted(insider)
        honest = insider.honest(params, train)
        gain = insider.loss(params, check) - insider.loss(params + honest, check)
        gains = insider.memory.setdefault("gains", [])
        gains.append(gain)
        if gain <= 0 or gain < np.quantile(gains, 1 - self.best):
            raise TimeoutError("no answer")
        return honest


def _parted(insider: Insider) -> tuple[Examples, Examples]:
    """The rows that it trains on, and those by which it guesses what the market will say."""
    if insider.rows is None:
        raise BazaarError(f"provider {insider.own.id} answers by a callable: without data it cannot guess its gain")
    x, y = insider.rows
    if insider.known.leaked is not None:
        return (x, y), insider.known.secret()
    kept = torch.arange(len(y)) % 3 == 0
    return (x[~kept], y[~kept]), (x[kept], y[kept])
