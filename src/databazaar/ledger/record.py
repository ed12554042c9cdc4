"""What a replay goes through on its way, as far as reports look at it. Of many rounds the chances of some are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from databazaar.defence import Verdict
from databazaar.ledger.chain import Entry
from databazaar.ledger.figures import Figures
from databazaar.ledger.rounds import Line, Numbers, Rounds, Scores
from databazaar.roster import Purse

MOST_ROWS, MOST_NUMBERS = 2048, 2**22
"""So many rows of chances are kept at the most, and so many numbers in all of them together."""


class Sampled:
    """The chances of the rounds, in rows. While there are few rounds, each has its row; of many, a row is the chances
    at the start of `stride` rounds, a power of two, and those of the rounds between are not worked out.

    >>> sampled = Sampled(most_rows=2)
    >>> for chance in (0.0, 1.0, 4.0, 6.0, 9.0):
    ...     sampled.add(lambda chance=chance: np.array([chance, 1 - chance]))
    >>> sampled.stride, sampled.rows()[:, 0].tolist()
    (4, [0.0, 9.0])
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self.stride = 1
        self._most, self._seen = most_rows, 0
        self._rows: list[Numbers] = []

    def add(self, chances: Callable[[], Numbers]) -> None:
        if self._seen % self.stride == 0:
            most = self._most or (most_rows(len(self._rows[0])) if self._rows else 2)
            if len(self._rows) >= most:
                self._rows, self.stride = self._rows[::2], 2 * self.stride
            self._rows.append(chances())
        self._seen += 1

    def rows(self) -> Numbers:
        return np.array(self._rows)


def most_rows(width: int) -> int:
    """How many rows of so many numbers are kept at the most."""
    return max(2, min(MOST_ROWS, MOST_NUMBERS // width) // 2 * 2)


class Freed(NamedTuple):
    """Held-back pay of a provider that was settled: for it, or for the consumer. `round` is None at the close."""

    round: int | None
    provider: str
    amount: int
    released: bool


class Record:
    """All of a replay that a report is made of. `verdicts` stand with their rounds, in which providers have the numbers
    of their places in the roster; `entries` has the number and the hash of the entry that ends such a round, and
    `figures` what was measured of every answer."""

    def __init__(self) -> None:
        self.rounds = Rounds()
        self.purses: list[Purse] = []
        self.verdicts: list[tuple[int, Verdict]] = []
        self.freed: list[Freed] = []
        self.entries: dict[int, tuple[int, str]] = {}
        self.figures = Figures()
        self._chances = Sampled()
        self._next: Callable[[], Numbers] | None = None

    def begins(self, purse: Purse, chances: Callable[[], Numbers]) -> None:
        """A round begins, or would begin."""
        self.purses.append(purse)
        self._next = chances

    def ends(self, lines: Iterable[Line], scores: Scores, verdicts: Iterable[Verdict] = ()) -> None:
        """The round that began last is settled."""
        assert self._next is not None
        self.verdicts.extend((len(self.rounds), verdict) for verdict in verdicts)
        self.rounds.add(len(self.rounds), lines, scores)
        self._chances.add(self._next)
        self._next = None

    def frees(self, place: int, entry: Entry) -> None:
        """Held-back pay of who is at this place was settled, in the round that ended last or at the close."""
        self.freed.append(Freed(entry.round, entry.provider or "", entry.amount or 0, entry.releases))
        self.rounds.free(place, entry.releases)

    @property
    def stride(self) -> int:
        """For how many rounds a row of `distributions` stands, but for the last two: the one before the last may stand
        for fewer, and the last is what would come next."""
        return self._chances.stride

    @property
    def distributions(self) -> Numbers:
        last = np.zeros((0, 0)) if self._next is None else self._next()[None]
        return np.concatenate([self._chances.rows(), last]) if len(self.rounds) else last
