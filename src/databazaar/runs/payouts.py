"""Who earned what, in columns: of a million providers a line is made for whoever is looked at, and the rest are told in
groups whose sums add up to the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from databazaar.roster import Amounts
from databazaar.sequences import OnDemand

MOST_LISTED = 200
"""So many providers have a line each on a page or a screen. Of more, the best paid have one, and all are in groups."""
MOST_NAMED = 50
"""So many lines a larger market shows."""
MOST_STATED = 10_000
"""Up to so many providers have a line each in statements for programs; of more, those who were asked have one."""
PARTS = 10
"""Those who were paid are told in so many groups, by what they were paid."""


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
    """Some providers together. `least` and `most` are what one of them was paid."""

    title: str
    providers: int
    accesses: int
    failures: int
    pay: int
    least: int = 0
    most: int = 0


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

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Everybody in groups: those who were paid by tenths of their number, the best paid first; who was asked and
        not paid; who was never asked. No group is empty, and their sums are those of the whole."""
        paid = np.flatnonzero(self.pay)
        tenths = np.array_split(paid[np.argsort(-self.pay[paid], kind="stable")], PARTS)
        titles = [f"{_ordinal(part)} tenth of those paid" for part in range(1, PARTS + 1)]
        unpaid, never = np.setdiff1d(self.asked, paid), np.setdiff1d(np.arange(len(self)), self.asked)
        found = zip([*titles, "asked, not paid", "never asked"], [*tenths, unpaid, never], strict=True)
        return tuple(self._group(title, places) for title, places in found if len(places))

    def _group(self, title: str, places: NDArray[np.int64]) -> Group:
        pay = self.pay[places]
        sums = int(self.accesses[places].sum()), int(self.failures[places].sum()), int(pay.sum())
        return Group(title, len(places), *sums, *((int(pay.min()), int(pay.max())) if len(pay) else (0, 0)))


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
