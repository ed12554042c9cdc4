"""How a run went, round by round: everybody's chance, price and share of the money, and who could be asked at all."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.ledger.rounds import Numbers, Places
from databazaar.roster import RoundBudget

if TYPE_CHECKING:
    from databazaar.runs.report import Report

ENDLESS = 2**63 - 1

END = 0.1
"""The end of a run is the last tenth of its money."""
SHORT = 0.2
"""Rounds of the last fifth of the money in which somebody is too dear for what is left are not part of the end."""

Bar = Literal["used up", "access", "round", "left"]
"""Why a provider cannot be asked: no access is left, or one costs more than the consumer pays for one, spends in a
round, or has left."""


class Barred(NamedTuple):
    """From which round on a provider could not be asked any more, and why. `price` is its price then."""

    since: int
    bar: Bar
    price: int


class Trajectory:
    """Rows are rounds, then what would come next; columns are providers."""

    def __init__(self, report: Report) -> None:
        self.rounds = len(report.rounds)
        self._purses, self._columns = report.purses, report.columns
        self.chances: Numbers = np.asarray(report.distributions, dtype=np.float64)[: self.rounds + 1]
        self.prices = np.array([self.round_budget(row).quotes for row in range(self.rounds + 1)], dtype=np.float64)
        self.asked = np.array(report.columns.in_rounds(report.columns.quoted), dtype=np.float64)

    def round_budget(self, round: int) -> RoundBudget:
        """What a round was drawn from; `rounds` is the one that would come next."""
        return self._purses[min(round, len(self._purses) - 1)]

    @cached_property
    def shares(self) -> Numbers:
        """The part of its money that each row would pay to each provider, by the chances. Rows sum to 1."""
        shares: Numbers = self.chances * self.prices
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def at_end(self, of: Numbers) -> Numbers:
        """The mean over the end of the run, by money; what would come next where no round was played."""
        if not self.rounds:
            return np.asarray(of[-1])
        last = self.full_rounds
        spent = np.cumsum(self.asked[:last])
        first = min(int(np.searchsorted(spent, (1 - END) * spent[-1], side="right")), last - 1)
        return np.asarray(np.average(of[first:last], axis=0, weights=self.asked[first:last]))

    @cached_property
    def full_rounds(self) -> int:
        """How many rounds there were until the money ran short."""
        spent, from_the_start = np.cumsum(self.asked), _beyond_what_is_left(self.round_budget(0))
        for last in range(self.rounds, 0, -1):
            if spent[last - 1] < (1 - SHORT) * spent[-1]:
                break
            if not (_beyond_what_is_left(self.round_budget(last - 1)) & ~from_the_start).any():
                return last
        return self.rounds

    def barred(self, place: int) -> Barred | None:
        """Whether a provider could not be asked any more in the end. A cap may also be used up by the last round."""
        if place in self._used_up_since:
            return self._barred(self._used_up_since[place], place)
        since = int(self._barred_since[place])
        return None if since > max(self.rounds - 1, 0) else self._barred(since, place)

    @cached_property
    def _used_up_since(self) -> dict[int, int]:
        """The round after the last draw that a cap allowed, for those whose cap is used up."""
        caps, left = self.round_budget(0).accesses_left, self.round_budget(self.rounds).accesses_left
        if caps is None or left is None:
            return {}
        since = dict.fromkeys(np.flatnonzero(left == 0).tolist(), 0)
        for place, round in zip(self._columns.providers.tolist(), self._columns.when.tolist(), strict=True):
            if place in since:
                since[place] = round + 1  # nobody is drawn after that
        return since

    @cached_property
    def _barred_since(self) -> Places:
        """The round from which on each could not be asked; that after the last one where it could."""
        available = np.array([self.round_budget(round).available for round in range(max(self.rounds, 1))])
        return np.where(available.any(axis=0), len(available) - available[::-1].argmax(axis=0), 0)

    def _barred(self, since: int, place: int) -> Barred:
        round_budget = self.round_budget(since)
        price, left = int(round_budget.quotes[place]), round_budget.accesses_left
        bar: Bar = "left"
        if left is not None and left[place] == 0:
            bar = "used up"
        elif round_budget.most_per_access is not None and price > round_budget.most_per_access:
            bar = "access"
        elif round_budget.most_per_round is not None and price > round_budget.most_per_round:
            bar = "round"
        return Barred(since, bar, price)


def _beyond_what_is_left(round_budget: RoundBudget) -> NDArray[np.bool_]:
    """Who could be asked, if only more of the budget were left."""
    return replace(round_budget, left=ENDLESS).available & ~round_budget.available
