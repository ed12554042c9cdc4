"""The rounds of a run as a replay has seen them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.codes import Code

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Line = tuple[int, float, float | None, int, Code | None, int, int]
"""An access without its number: provider, probability, gain, paid, failure, quoted, held."""


@dataclass(frozen=True, slots=True)
class Access:
    """One draw of one round. `gain` is U(w + γg) − U(w); None where the reply was invalid. `quoted` was reserved, and
    `held` was held back when `paid` was paid: what became of it, later entries say."""

    draw: int
    provider: int
    probability: float
    gain: float | None
    paid: int
    failure: Code | None = None
    quoted: int = 0
    held: int = 0


@dataclass(frozen=True)
class Round:
    """One round as it was committed. `utility` and `loss` are those of the model the round began with, `reached` and
    `reached_loss` those of the model it ended with."""

    number: int
    accesses: tuple[Access, ...]
    utility: float
    loss: float | None
    reached: float
    reached_loss: float | None

    @property
    def scores(self) -> Scores:
        return Scores(self.utility, self.loss, self.reached, self.reached_loss)


class Scores(NamedTuple):
    """What the hold-out said before a round and after it."""

    utility: float
    loss: float | None
    reached: float
    reached_loss: float | None

    @property
    def ended(self) -> tuple[float, float | None]:
        """Utility and loss of the model that the run goes on with."""
        return self.reached, self.reached_loss


class Rounds(list[Round]):
    """The rounds of a run, with columns over all accesses for those who look at all of them.

    >>> accesses = Access(0, 3, 0.5, 0.1, 2, None, 2), Access(1, 1, 0.5, None, 0, Code("no-answer"), 4)
    >>> rounds = Rounds([Round(0, accesses, 0.5, None, 0.6, None)])
    >>> str(rounds[0].accesses[1].failure), rounds.providers.tolist(), rounds.in_rounds(rounds.quoted)
    ('no answer by the deadline', [3, 1], [6])
    """

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        super().__init__(rounds)
        self._count = sum(len(one.accesses) for one in self)
        self._waiting: dict[int, list[tuple[int, int]]] = {}
        self._later: dict[int, int] = {}
        self._released: dict[int, int] = {}

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Rounds:
        """These rounds with columns, which they may have already."""
        return rounds if isinstance(rounds, Rounds) else cls(rounds)

    def add(self, number: int, lines: Iterable[Line], scores: Scores) -> None:
        """One more round, with a line for each access."""
        accesses = tuple(Access(draw, *line) for draw, line in enumerate(lines))
        self.append(Round(number, accesses, *scores))
        for access in accesses:
            if access.held:
                self._waiting.setdefault(access.provider, []).append((self._count + access.draw, access.held))
        self._count += len(accesses)

    def free(self, provider: int, released: bool) -> None:
        """All that is held back of a provider is settled, with the last round: it is paid, or it is not."""
        for place, held in self._waiting.pop(provider, ()):
            if released:
                self._later[place] = held
                self._released[len(self) - 1] = self._released.get(len(self) - 1, 0) + held

    @property
    def accesses(self) -> Iterator[Access]:
        """All accesses, round by round; the columns have a number for each."""
        return (access for one in self for access in one.accesses)

    @property
    def scores(self) -> Sequence[Scores]:
        return [one.scores for one in self]

    @property
    def sizes(self) -> Places:
        return np.array([len(one.accesses) for one in self], dtype=np.int64)

    @property
    def when(self) -> Places:
        """The place of each access's round."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def providers(self) -> Places:
        return np.array([access.provider for access in self.accesses], dtype=np.int64)

    @property
    def gains(self) -> Numbers:
        """NaN where the reply was invalid."""
        return np.array([math.nan if access.gain is None else access.gain for access in self.accesses])

    @property
    def paid(self) -> Sequence[int]:
        return [access.paid for access in self.accesses]

    @property
    def earned(self) -> Sequence[int]:
        """What each access was paid in the end: with what was held back of it, where that was released."""
        return [access.paid + self._later.get(place, 0) for place, access in enumerate(self.accesses)]

    @property
    def spent(self) -> list[int]:
        """What was paid in each round, and released with it; at the close, with the last one."""
        return [paid + self._released.get(place, 0) for place, paid in enumerate(self.in_rounds(self.paid))]

    @property
    def quoted(self) -> Sequence[int]:
        return [access.quoted for access in self.accesses]

    @property
    def failures(self) -> Iterator[tuple[int, int, Code]]:
        """The round's number, the provider and the reason of every access that failed, in their order."""
        for one in self:
            yield from ((one.number, a.provider, a.failure) for a in one.accesses if a.failure is not None)

    @property
    def failed(self) -> Places:
        return np.array([sum(a.failure is not None for a in one.accesses) for one in self], dtype=np.int64)

    def in_rounds(self, amounts: Sequence[int]) -> list[int]:
        """Amounts of accesses, as `paid` and `quoted` are, added up for each round."""
        each = iter(amounts)
        return [sum(islice(each, len(one.accesses))) for one in self]
