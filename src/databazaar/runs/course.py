"""How a run went, round by round: everybody's chance, price and share of the money, and who could be asked at all."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.roster import Purse

if TYPE_CHECKING:
    from databazaar.runs.report import Report

Numbers = NDArray[np.float64]
ENDLESS = 2**63 - 1

END = 0.1
"""The end of a run is the last tenth of its money."""
SHORT = 0.2
"""In rounds of the last fifth of the money, somebody may be too dear for what is left. Chances then say little of what
the sampler thinks, so these rounds are not the end that is looked at."""

Bar = Literal["used up", "access", "round", "left"]
"""Why a provider cannot be asked: no access is left, or one costs more than the consumer pays for one, spends in a
round, or has left."""


class Barred(NamedTuple):
    """From which round on a provider could not be asked any more, and why. `price` is its price then."""

    since: int
    bar: Bar
    price: int


class Course:
    """Rows are rounds, then what would come next; columns are providers."""

    def __init__(self, report: Report) -> None:
        self.rounds = len(report.rounds)
        rows = self.rounds + 1
        self.purses = report.purses[:rows]
        self.chances: Numbers = np.asarray(report.distributions, dtype=np.float64)[:rows]
        self.prices = np.array([purse.quotes for purse in self.purses], dtype=np.float64)
        self.asked = np.array([float(sum(a.quoted for a in round.accesses)) for round in report.rounds])

    @cached_property
    def shares(self) -> Numbers:
        """The part of its money that each round would pay to each provider, by the chances. Rows sum to 1."""
        money = self.chances * self.prices
        shares: Numbers = money / money.sum(axis=1, keepdims=True)
        return shares

    def at_end(self, of: Numbers) -> Numbers:
        """The mean over the end of the run, by money; what would come next where no round was played."""
        if not self.rounds:
            mean: Numbers = of[-1]
            return mean
        last = self.full_rounds
        spent = np.cumsum(self.asked[:last])
        end = slice(min(int(np.searchsorted(spent, (1 - END) * spent[-1], side="right")), last - 1), last)
        mean = np.average(of[end], axis=0, weights=self.asked[end])
        return mean

    @cached_property
    def full_rounds(self) -> int:
        """How many rounds there were until the money ran short."""
        spent, from_the_start = np.cumsum(self.asked), _beyond_what_is_left(self.purses[0])
        for last in range(self.rounds, 0, -1):
            if spent[last - 1] < (1 - SHORT) * spent[-1]:
                break
            if not (_beyond_what_is_left(self.purses[last - 1]) & ~from_the_start).any():
                return last
        return self.rounds

    @cached_property
    def _can_be_asked(self) -> NDArray[np.bool_]:
        return np.array([purse.available for purse in self.purses])

    def barred(self, place: int) -> Barred | None:
        """Whether a provider could not be asked any more in the end. A cap may also be used up by the last round."""
        left = [None if purse.accesses_left is None else int(purse.accesses_left[place]) for purse in self.purses]
        if left[-1] == 0:
            since = left.index(0)
            return Barred(since, "used up", int(self.prices[since, place]))
        played = self._can_be_asked[: max(self.rounds, 1), place]
        if played[-1]:
            return None
        since = len(played) - int(np.argmax(played[::-1])) if played.any() else 0
        purse, price = self.purses[since], int(self.prices[since, place])
        if purse.most_per_access is not None and price > purse.most_per_access:
            return Barred(since, "access", price)
        if purse.most_per_round is not None and price > purse.most_per_round:
            return Barred(since, "round", price)
        return Barred(since, "left", price)


def _beyond_what_is_left(purse: Purse) -> NDArray[np.bool_]:
    """Who could be asked, if only more of the budget were left."""
    return replace(purse, left=ENDLESS).available & ~purse.available
