"""The rounds of a run, kept in columns: a hundred thousand of them are a few megabytes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from databazaar.codes import Code

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Line = tuple[int, float, float | None, int, Code | None, int, int]
"""An access without its number: provider, probability, gain, paid, failure, quoted, held."""


@dataclass(frozen=True)
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


class Rounds(Sequence[Round]):
    """Rounds one after the other. Each is made when it is asked for; what looks at all of them looks at columns.

    >>> accesses = Access(0, 3, 0.5, 0.1, 2, None, 2), Access(1, 1, 0.5, None, 0, Code("no-answer"), 4)
    >>> rounds = Rounds([Round(0, accesses, 0.5, None, 0.6, None)])
    >>> str(rounds[0].accesses[1].failure), rounds.providers.tolist(), rounds.in_rounds(rounds.quoted)
    ('no answer by the deadline', [3, 1], [6])
    """

    def __init__(self, rounds: Iterable[Round] = ()) -> None:
        self._numbers, self._ends = array("q"), array("q")
        self._scores: list[Scores] = []
        self._providers, self._probabilities, self._gains = array("q"), array("d"), array("d")
        self._paid: list[int] = []
        self._quoted: list[int] = []
        self._failures: dict[int, Code] = {}
        self._held: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = {}
        self._later: dict[int, int] = {}
        self._released: dict[int, int] = {}
        for one in rounds:
            lines = [(a.provider, a.probability, a.gain, a.paid, a.failure, a.quoted, a.held) for a in one.accesses]
            self.add(one.number, lines, one.scores)

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Rounds:
        """These rounds with columns, which they may have already."""
        return rounds if isinstance(rounds, Rounds) else cls(rounds)

    def add(self, number: int, lines: Iterable[Line], scores: Scores) -> None:
        """One more round, with a line for each access."""
        for provider, probability, gain, paid, failure, quoted, held in lines:
            if failure is not None:
                self._failures[len(self._paid)] = failure
            if held:
                self._held[len(self._paid)] = held
                self._waiting.setdefault(provider, []).append(len(self._paid))
            self._providers.append(provider)
            self._probabilities.append(probability)
            self._gains.append(math.nan if gain is None else gain)
            self._paid.append(paid)
            self._quoted.append(quoted)
        self._numbers.append(number)
        self._ends.append(len(self._paid))
        self._scores.append(scores)

    def free(self, provider: int, released: bool) -> None:
        """All that is held back of a provider is settled, with the last round: it is paid, or it is not."""
        for at in self._waiting.pop(provider, ()):
            if released:
                self._later[at] = self._held[at]
                self._released[len(self) - 1] = self._released.get(len(self) - 1, 0) + self._held[at]

    def __len__(self) -> int:
        return len(self._scores)

    @overload
    def __getitem__(self, place: int) -> Round: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Round, ...]: ...

    def __getitem__(self, place: int | slice) -> Round | tuple[Round, ...]:
        if isinstance(place, slice):
            return tuple(self._round(at) for at in range(*place.indices(len(self))))
        if not -len(self) <= place < len(self):
            raise IndexError(f"round {place} of {len(self)}")
        return self._round(place % len(self))

    def __iter__(self) -> Iterator[Round]:
        return map(self._round, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rounds | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(one == its for one, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def _round(self, place: int) -> Round:
        begins = self._ends[place - 1] if place else 0
        accesses = tuple(
            Access(
                at - begins,
                self._providers[at],
                self._probabilities[at],
                None if (gain := self._gains[at]) != gain else gain,
                self._paid[at],
                self._failures.get(at),
                self._quoted[at],
                self._held.get(at, 0),
            )
            for at in range(begins, self._ends[place])
        )
        return Round(self._numbers[place], accesses, *self._scores[place])

    @property
    def scores(self) -> Sequence[Scores]:
        return self._scores

    @property
    def sizes(self) -> Places:
        """How many accesses each round has."""
        ends = np.array([0, *self._ends], dtype=np.int64)
        return ends[1:] - ends[:-1]

    @property
    def when(self) -> Places:
        """The place of each access's round; this and the next ones have a number for each access."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def providers(self) -> Places:
        return np.array(self._providers, dtype=np.int64)

    @property
    def gains(self) -> Numbers:
        """NaN where the reply was invalid."""
        return np.array(self._gains, dtype=np.float64)

    @property
    def paid(self) -> Sequence[int]:
        return self._paid

    @property
    def earned(self) -> Sequence[int]:
        """What each access was paid in the end: with what was held back of it, where that was released."""
        return [paid + self._later.get(at, 0) for at, paid in enumerate(self._paid)] if self._later else self._paid

    @property
    def spent(self) -> list[int]:
        """What was paid in each round, and released with it; at the close, with the last one."""
        return [paid + self._released.get(place, 0) for place, paid in enumerate(self.in_rounds(self._paid))]

    @property
    def quoted(self) -> Sequence[int]:
        return self._quoted

    @property
    def voided(self) -> Sequence[int]:
        """What was reserved for an access that failed, else nothing."""
        return [amount if at in self._failures else 0 for at, amount in enumerate(self._quoted)]

    @property
    def failures(self) -> Iterator[tuple[int, int, Code]]:
        """The round's number, the provider and the reason of every access that failed, in their order."""
        places = np.searchsorted(np.array(self._ends), list(self._failures), side="right").tolist()
        for place, (at, reason) in zip(places, self._failures.items(), strict=True):
            yield self._numbers[place], self._providers[at], reason

    @property
    def failed(self) -> Places:
        """How many accesses failed in each round."""
        ends, places = np.array(self._ends), np.fromiter(self._failures, np.int64, len(self._failures))
        return np.bincount(np.searchsorted(ends, places, side="right"), minlength=len(self))

    def in_rounds(self, amounts: Sequence[int]) -> list[int]:
        """Amounts of accesses, as `paid` and `quoted` are, added up for each round."""
        begins = [0, *self._ends]
        return [sum(amounts[begin:end]) for begin, end in pairwise(begins)]

    def providers_of(self, begin: int, end: int) -> Places:
        """Who was drawn in these rounds, one after the other."""
        starts, ends = (self._ends[at - 1] if at else 0 for at in (begin, end))
        return np.array(self._providers[starts:ends], dtype=np.int64)
