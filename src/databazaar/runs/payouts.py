"""Who earned what, in columns: a line is made for each provider that is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from databazaar.roster import Amounts
from databazaar.sequences import OnDemand

MOST_LISTED = 200
"""So many providers have a line each on a page or a screen. Of more, the best paid have one, and all others one."""
MOST_NAMED = 50
"""So many lines a larger market shows."""
MOST_STATED = 10_000
"""Up to so many providers have a line each in statements for programs; of more, those who were asked have one."""


@dataclass(frozen=True)
class Payout:
    """One provider's line of the statement. `failures` counts accesses that were voided, so not paid.

    `epsilon` is the differential privacy that a federated provider says it has spent.
    """

    provider: str
    owner: str
    price: int
    accesses: int
    pay: int
    failures: int
    epsilon: float | None = None


@dataclass(frozen=True)
class Group:
    """Some providers together."""

    title: str
    providers: int
    accesses: int
    failures: int
    pay: int


class Payouts(OnDemand[Payout]):
    """Every provider's line, in the market's order.

    >>> lines = Payouts.of([Payout("a", "x", 2, 1, 2, 0), Payout("b", "y", 3, 0, 0, 0), Payout("c", "y", 3, 2, 6, 1)])
    >>> [lines[place].provider for place in lines.best_paid(2)], lines.asked.tolist(), lines.whole.pay
    (['c', 'a'], [0, 2], 8)
    """

    def __init__(
        self,
        ids: Sequence[str],
        owners: Sequence[str],
        prices: Amounts,
        accesses: Amounts,
        pay: Amounts,
        failures: Amounts,
        epsilons: Mapping[str, float | None] | None = None,
    ) -> None:
        self.ids, self.owners, self.prices = ids, owners, prices
        self.accesses, self.pay, self.failures = accesses, pay, failures
        self._epsilons = epsilons or {}

    @classmethod
    def of(cls, lines: Sequence[Payout]) -> Payouts:
        """These lines with columns, which they may have already."""
        if isinstance(lines, Payouts):
            return lines

        def column(name: str) -> Amounts:
            return np.array([getattr(line, name) for line in lines], dtype=np.int64)

        numbers = column("price"), column("accesses"), column("pay"), column("failures")
        epsilons = {line.provider: line.epsilon for line in lines if line.epsilon is not None}
        return cls([line.provider for line in lines], [line.owner for line in lines], *numbers, epsilons)

    def with_epsilons(self, epsilons: Mapping[str, float | None]) -> Payouts:
        return Payouts(self.ids, self.owners, self.prices, self.accesses, self.pay, self.failures, epsilons)

    def __len__(self) -> int:
        return len(self.ids)

    def _item(self, place: int) -> Payout:
        id, owner, price = self.ids[place], self.owners[place], int(self.prices[place])
        counts = int(self.accesses[place]), int(self.pay[place]), int(self.failures[place])
        return Payout(id, owner, price, *counts, self._epsilons.get(id))

    def __repr__(self) -> str:
        return repr(self[:]) if len(self) <= MOST_NAMED else f"<{len(self):,} payouts>"

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
        """Every provider's place."""
        return {id: place for place, id in enumerate(self.ids)}

    def best_paid(self, most: int | None = None, everybody: bool = False) -> list[int]:
        """The places of those who were asked, the best paid first, or of everybody."""
        places = range(len(self)) if everybody else self.asked.tolist()
        pay, ids = self.pay.tolist(), self.ids
        return sorted(places, key=lambda place: (-pay[place], ids[place]))[:most]

    @property
    def whole(self) -> Group:
        """All of them together."""
        return self._group("Total", np.arange(len(self)))

    def others(self, named: Sequence[int], title: str) -> Group:
        """All but these places."""
        return self._group(title, np.setdiff1d(np.arange(len(self)), np.array(named, dtype=np.int64)))

    def _group(self, title: str, places: NDArray[np.int64]) -> Group:
        sums = (int(column[places].sum()) for column in (self.accesses, self.failures, self.pay))
        return Group(title, len(places), *sums)
