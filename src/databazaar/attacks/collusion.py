"""Attackers that act together: a pair that takes turns, and a crowd that hides in its own spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from databazaar.attacks.idle import Noise
from databazaar.attacks.known import Attack, Insider, Known, Vector, impostor
from databazaar.attacks.leaks import Leak
from databazaar.attacks.poisons import Flip, Sign
from databazaar.parties import Provider


@dataclass(frozen=True)
class Collude:
    """Pairs of owners that take turns. For the same parameters one sends v and the other −v, so that together they do
    nothing; next time the roles change. v is `factor` times what the data of whoever was asked first say."""

    factor: float = 1.0
    kind: ClassVar[str] = "collude"

    def join(self, known: Known) -> list[Provider]:
        pairs: dict[int, dict[str, Any]] = {}
        return [
            impostor(Insider(known, own, pairs.setdefault(k // 2, {})), (self.good if k % 2 == 0 else self.bad))
            for k, own in enumerate(known.own)
        ]

    def good(self, insider: Insider, params: Vector) -> Vector:
        return self._agreed(insider, params)

    def bad(self, insider: Insider, params: Vector) -> Vector:
        return -self._agreed(insider, params)

    def _agreed(self, insider: Insider, params: Vector) -> Vector:
        """What the first of the two sends for these parameters."""
        memory = insider.memory
        if "params" not in memory or not np.array_equal(memory["params"], params):
            turn = -memory.get("turn", -1)
            agreed = insider.honest(params) * params.dtype.type(turn * self.factor)
            memory.update(params=params, turn=turn, agreed=agreed)
        agreed_now: Vector = memory["agreed"]
        return agreed_now


@dataclass(frozen=True)
class Alie:
    """ "A little is enough" (Baruch, Baruch and Goldberg, 2019): the mean of what the attackers' data say, moved against
    itself by `z` of their standard deviations in every coordinate; without a z, by as many as most of the market's
    others would lie beyond."""

    z: float | None = None
    kind: ClassVar[str] = "alie"

    def join(self, known: Known) -> list[Provider]:
        memory: dict[str, Any] = {}
        crowd = [Insider(known, own, memory) for own in known.own]
        memory["crowd"] = [Insider(known, own) for own in known.own]
        return [impostor(one, self.answer) for one in crowd]

    def answer(self, insider: Insider, params: Vector) -> Vector:
        memory = insider.memory
        if "params" not in memory or not np.array_equal(memory["params"], params):
            honest = np.stack([one.honest(params) for one in memory["crowd"]])
            mean, spread = honest.mean(axis=0), honest.std(axis=0)
            z = self.hidden(insider.known.providers, len(honest)) if self.z is None else self.z
            moved = mean - np.sign(mean) * spread * params.dtype.type(z)
            memory.update(params=params, moved=moved.astype(params.dtype))
        answer: Vector = memory["moved"]
        return answer

    @staticmethod
    def hidden(providers: int, attackers: int) -> float:
        """How many standard deviations still pass for one of the crowd, by the paper's count."""
        honest = max(providers - attackers, 1)
        supporters = min(max(providers // 2 + 1 - attackers, 1), honest - 1) if honest > 1 else 0
        return max(NormalDist().inv_cdf(min(max((honest - supporters) / honest, 0.5), 0.99)), 0.3)


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
