"""Attackers that act together: a pair that takes turns, and a crowd that hides in its own spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from databazaar.parties import Provider
from databazaar_experiments.attacks.idle import Noise
from databazaar_experiments.attacks.known import Attack, Insider, Known, Vector, impostor
from databazaar_experiments.attacks.leaks import Leak
from databazaar_experiments.attacks.poisons import Flip, Sign


@dataclass(frozen=True)
class Collude:
    """Pairs of owners that take turns: one breaks something, and whichever of them is asked next repairs it and looks
    useful. What is broken is `factor` times what the data of the first say, turned round."""

    factor: float = 1.0
    kind: ClassVar[str] = "collude"

    def join(self, known: Known) -> list[Provider]:
        pairs: dict[int, dict[str, Any]] = {}
        insiders = (Insider(known, own, pairs.setdefault(k // 2, {})) for k, own in enumerate(known.own))
        return [impostor(insider, self.answer) for insider in insiders]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        broken: Vector | None = insider.memory.pop("broken", None)
        if broken is not None:
            return -broken
        breaks = insider.memory["broken"] = insider.honest(params) * -self.factor
        return breaks


@dataclass(frozen=True)
class Alie:
    """A little is enough (Baruch, Baruch and Goldberg, 2019): the mean of what the attackers' data say, moved against
    itself in every coordinate by `z` of their standard deviations; without a z, by as many as the paper counts to be
    hidden among the honest."""

    z: float | None = None
    kind: ClassVar[str] = "alie"

    def join(self, known: Known) -> list[Provider]:
        memory: dict[str, Any] = {}
        memory["crowd"] = [Insider(known, own, memory) for own in known.own]
        return [impostor(one, self.answer) for one in memory["crowd"]]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        memory = insider.memory
        if "params" not in memory or not np.array_equal(memory["params"], params):
            said = np.stack([one.honest(params) for one in memory["crowd"]])
            z = hidden_within(insider.known.providers, len(said)) if self.z is None else self.z
            agreed = said.mean(axis=0) - z * np.sign(said.mean(axis=0)) * said.std(axis=0)
            memory.update(params=params, agreed=agreed)
        answer: Vector = memory["agreed"]
        return answer


def hidden_within(providers: int, attackers: int) -> float:
    """How many standard deviations off so many attackers can be, and still be nearer to the mean than enough honest
    providers to make a majority with.

    >>> round(hidden_within(50, 12), 2)
    0.34
    """
    honest, needed = max(1, providers - attackers), providers // 2 + 1 - attackers
    return NormalDist().inv_cdf(min(max((honest - needed) / honest, 0.5), 0.99))


@dataclass(frozen=True)
class Mixed:
    """Everybody who takes part does something else, in turn."""

    attacks: Sequence[Attack] = field(default_factory=lambda: (Sign(), Noise(1.0), Flip(), Leak("poison")))
    kind: ClassVar[str] = "mixed"

    def join(self, known: Known) -> list[Provider]:
        return [
            provider
            for k, own in enumerate(known.own)
            for provider in self.attacks[k % len(self.attacks)].join(replace(known, own=(own,)))
        ]
