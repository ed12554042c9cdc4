"""What a replay goes through on its way, as far as reports look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from databazaar.defence import Verdict
from databazaar.ledger.chain import Entry
from databazaar.ledger.figures import Figures
from databazaar.ledger.rounds import Line, Numbers, Rounds, Scores
from databazaar.roster import RoundBudget


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
        """A round begins, or would begin."""
        self.purses.append(round_budget)
        self._next = chances

    def ends(self, lines: Iterable[Line], scores: Scores, verdicts: Iterable[Verdict] = ()) -> None:
        """The round that began last is settled."""
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
