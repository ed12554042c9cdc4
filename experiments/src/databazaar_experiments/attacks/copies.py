"""Registering: honestly, several times, in parts, or at another price. Nobody sends anything that is not true."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.parties import Provider
from databazaar_experiments.attacks.known import Insider, Known, Vector, impostor, length


@dataclass(frozen=True)
class Honest:
    """Attacks nothing: what a place in the market is worth to whoever just does its work."""

    kind: ClassVar[str] = "honest"

    def join(self, known: Known) -> list[Provider]:
        return list(known.own)


@dataclass(frozen=True)
class Clones:
    """The same data under several ids, whose owner is declared, or each of which claims to be its own.

    `noise` is added to every answer, and `bias` is a direction of each clone's own that all its answers share; both in
    lengths of the answer.
    """

    count: int = 5
    declared: bool = True
    noise: float = 0.0
    bias: float = 0.0
    kind: ClassVar[str] = "clones"

    def join(self, known: Known) -> list[Provider]:
        ids = [_renamed(own, k, self.declared) for own in known.own for k in range(self.count)]
        if not self.noise and not self.bias:
            return ids
        return [impostor(Insider(known, own), self.answer) for own in ids]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        honest = insider.honest(params)
        drift: Vector = insider.memory.setdefault("drift", insider.noise(honest, 1.0))
        size = length(honest)
        return honest + insider.noise(honest, self.noise * size) + drift * (self.bias * size)


@dataclass(frozen=True)
class Split:
    """The data split among several ids, declared or not."""

    count: int = 5
    declared: bool = True
    kind: ClassVar[str] = "split"

    def join(self, known: Known) -> list[Provider]:
        return [part for own in known.own for part in self._parts(own)]

    def _parts(self, own: Provider) -> list[Provider]:
        x, y = own.dataset
        if len(y) < self.count:
            raise BazaarError(f"provider {own.id} has {len(y)} rows: too few to split among {self.count} ids")
        return [
            replace(_renamed(own, k, self.declared), data=(x[rows], y[rows]))
            for k, rows in enumerate(np.array_split(np.arange(len(y)), self.count))
        ]


@dataclass(frozen=True)
class Price:
    """Honest work at several times the price."""

    factor: int = 2
    kind: ClassVar[str] = "price"

    def join(self, known: Known) -> list[Provider]:
        return [
            replace(
                own,
                price=self.factor * own.price,
                price_changes=[(change.from_round, self.factor * change.price) for change in own.offer.price_changes],
            )
            for own in known.own
        ]


def _renamed(own: Provider, k: int, declared: bool) -> Provider:
    """The k-th id of a provider; the first keeps the name."""
    id = own.id if k == 0 else f"{own.id}~{k + 1}"
    return replace(own, id=id, owner=own.owner if declared or k == 0 else id)
