"""What a replay goes through on its way, as far as reports look at it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from databazaar.defence import Findings, Verdict
from databazaar.ledger.chain import Entry
from databazaar.ledger.rounds import Line, Numbers, Places, Rounds, Scores
from databazaar.roster import RoundBudget

SHOWN = ("harm", "leak", "signal", "error")


@dataclass(frozen=True, eq=False)
class Curve:
    """What was measured of one provider: a number for each of its valid answers, NaN where a test did not speak."""

    rounds: Places
    harm: Numbers
    leak: Numbers
    signal: Numbers
    error: Numbers

    def __len__(self) -> int:
        return len(self.rounds)


class Figures:
    """A row for everybody who was asked in a market with a defence, and has given a valid answer.

    >>> figures = Figures()
    >>> figures.add(7, [2, 0], [True, False], Findings(leak=[1.5, None]))
    >>> [curve.leak.tolist() for curve in figures.curves(3)]
    [[], [], [1.5]]
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[float, ...]]] = {}

    def add(self, round: int, asked: Sequence[int], valid: Sequence[bool], findings: Findings) -> None:
        """A round's findings, without those whose answers are void."""
        for place, provider in enumerate(asked):
            if valid[place]:
                figures = (findings.at(name, place) for name in SHOWN)
                row = round, *(math.nan if figure is None else figure for figure in figures)
                self._rows.setdefault(provider, []).append(row)

    def curves(self, providers: int) -> list[Curve]:
        """Everybody's, in the order of the roster."""
        tables = (
            np.array(self._rows.get(i, []), dtype=np.float64).reshape(-1, 1 + len(SHOWN)) for i in range(providers)
        )
        return [Curve(table[:, 0].astype(np.int64), *table[:, 1:].T) for table in tables]


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
        self.purses: list[RoundBudget] = []
        self.verdicts: list[tuple[int, Verdict]] = []
        self.freed: list[Freed] = []
        self.entries: dict[int, tuple[int, str]] = {}
        self.figures = Figures()
        self._chances: list[Numbers] = []
        self._next: Callable[[], Numbers] | None = None

    def begins(self, round_budget: RoundBudget, chances: Callable[[], Numbers]) -> None:
        self.purses.append(round_budget)
        self._next = chances

    def ends(self, lines: Iterable[Line], scores: Scores, verdicts: Iterable[Verdict] = ()) -> None:
        assert self._next is not None
        self.verdicts.extend((len(self.rounds), verdict) for verdict in verdicts)
        self.rounds.add(len(self.rounds), lines, scores)
        self._chances.append(self._next())
        self._next = None

    def frees(self, place: int, entry: Entry) -> None:
        """Held-back pay of who is at this place was settled, in the round that ended last or at the close."""
        self.freed.append(Freed(entry.round, entry.provider or "", entry.amount or 0, entry.releases))
        self.rounds.free(place, entry.releases)

    @property
    def distributions(self) -> Numbers:
        """p at the start of each round, and what would come next."""
        last = [] if self._next is None else [self._next()]
        return np.array([*self._chances, *last]) if self._chances or last else np.zeros((0, 0))
