"""Who earned what: a line for each provider."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from databazaar.codes import counted
from databazaar.roster import Amounts

MOST_LISTED = 200
"""So many providers have a line each on a page or a screen. Of more, the best paid have one, and all others one."""
MOST_NAMED = 50
"""So many lines a larger market shows."""


@dataclass(frozen=True)
class Payout:
    """One provider's line of the statement. `failures` counts accesses that were voided, so not paid. `epsilon` is the
    differential privacy that a federated provider says it has spent."""

    provider: str
    owner: str
    price: int
    accesses: int
    pay: int
    failures: int
    epsilon: float | None = None


@dataclass(frozen=True)
class Group:
    title: str
    providers: int
    accesses: int
    failures: int
    pay: int


class Payouts(tuple[Payout, ...]):
    """Every provider's line, in the market's order, with columns for what looks at all of them.

    >>> lines = Payouts([Payout("a", "x", 2, 1, 2, 0), Payout("b", "y", 3, 0, 0, 0), Payout("c", "y", 3, 2, 6, 1)])
    >>> [lines[place].provider for place in lines.best_paid(2)], lines.asked.tolist(), lines.whole.pay
    (['c', 'a'], [0, 2], 8)
    """

    @cached_property
    def ids(self) -> list[str]:
        return [line.provider for line in self]

    @cached_property
    def owners(self) -> list[str]:
        return [line.owner for line in self]

    @cached_property
    def accesses(self) -> Amounts:
        return np.array([line.accesses for line in self], dtype=np.int64)

    @cached_property
    def failures(self) -> Amounts:
        return np.array([line.failures for line in self], dtype=np.int64)

    @cached_property
    def pay(self) -> Amounts:
        return np.array([line.pay for line in self], dtype=np.int64)

    @property
    def many(self) -> bool:
        """Whether these are too many for a page that lists everybody."""
        return len(self) > MOST_LISTED

    @cached_property
    def asked(self) -> NDArray[np.int64]:
        """The places of those who were asked, and answered or not."""
        return np.flatnonzero((self.accesses > 0) | (self.failures > 0) | (self.pay > 0))

    @cached_property
    def places(self) -> dict[str, int]:
        return {id: place for place, id in enumerate(self.ids)}

    def best_paid(self, most: int | None = None, everybody: bool = False) -> list[int]:
        """The places of those who were asked, the best paid first, or of everybody."""
        places = range(len(self)) if everybody else self.asked.tolist()
        pay, ids = self.pay.tolist(), self.ids
        return sorted(places, key=lambda place: (-pay[place], ids[place]))[:most]

    @property
    def whole(self) -> Group:
        return self._group("Total", np.arange(len(self)))

    def listed(self, most: int) -> tuple[list[int], Group | None]:
        """Who has a line, best paid first: everybody; of many, `most` of those who were asked, and all others one."""
        if not self.many:
            return self.best_paid(everybody=True), None
        named = self.best_paid(most)
        rest = np.setdiff1d(np.arange(len(self)), np.array(named, dtype=np.int64))
        return named, self._group(counted(len(rest), "other"), rest)

    def _group(self, title: str, places: NDArray[np.int64]) -> Group:
        sums = (int(column[places].sum()) for column in (self.accesses, self.failures, self.pay))
        return Group(title, len(places), *sums)
