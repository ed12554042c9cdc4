"""No data behind the answers: what the market itself has published, noise, or next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from databazaar_experiments.attacks.known import Alone, Insider, Vector, length, scaled


@dataclass(frozen=True)
class Replay(Alone):
    """Sends public changes of the model back: the last that it has seen, or all of them since its first ask.

    `factor` makes the answer longer, or turns it round; `noise` is added to it, in lengths of the answer: another every
    time, or always the same where it is `constant`, as if there were data behind it.
    """

    what: Literal["last", "all"] = "last"
    factor: float = 1.0
    noise: float = 0.0
    constant: bool = False
    kind: ClassVar[str] = "replay"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        if insider.last is None or insider.first is None:
            return insider.noise(params, 1e-3)
        last = params - insider.last
        change = last if self.what == "last" else scaled(params - insider.first, length(last))
        sent = change * self.factor
        fresh = insider.noise(sent, 1.0)
        noise = insider.memory.setdefault("constant", fresh) if self.constant else fresh
        return sent + scaled(noise, self.noise * length(sent))


@dataclass(frozen=True)
class Noise(Alone):
    """Random numbers, `length` times as long as an honest answer; always the same ones where they are `constant`."""

    length: float = 0.1
    constant: bool = False
    kind: ClassVar[str] = "noise"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        size = self.length * length(insider.honest(params))
        fresh = insider.noise(params, 1.0)
        return scaled(insider.memory.setdefault("constant", fresh) if self.constant else fresh, size)


@dataclass(frozen=True)
class Zero(Alone):
    """Sends a thousandth of its update: next to nothing does no harm, where most do."""

    factor: float = 1e-3
    kind: ClassVar[str] = "zero"

    def answer(self, insider: Insider, params: Vector) -> Vector:
        return insider.honest(params) * self.factor
