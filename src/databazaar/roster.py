"""Who sells, under which owner, and at what price; and what a consumer has left to spend on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from databazaar.display import Displayed, listed
from databazaar.errors import BazaarError

Amounts = NDArray[np.int64]
"""Money in minor units, one number per provider or per draw."""


@dataclass(frozen=True)
class Offer:
    """One provider as the market's rules see it: `price` is what an access costs, in minor units."""

    id: str
    owner: str
    price: int


@dataclass(frozen=True, repr=False)
class Roster(Displayed):
    """All offers of a market. A provider's place here is its index in draws, distributions and gains.

    >>> roster = Roster.of([("north", "Bank N", 2), ("south", "Bank S", 5)])
    >>> roster.ids, roster.owners, roster.prices.tolist()
    (('north', 'south'), ('Bank N', 'Bank S'), [2, 5])
    """

    offers: tuple[Offer, ...]

    def __post_init__(self) -> None:
        if not self.offers:
            raise BazaarError("a market needs at least one provider")
        seen: set[str] = set()
        for offer in self.offers:
            if offer.id in seen:
                raise BazaarError(f"two providers are called {offer.id}: give each an id of its own")
            seen.add(offer.id)

    @classmethod
    def of(cls, offers: Iterable[tuple[str, str, int]]) -> Roster:
        return cls(tuple(Offer(id, owner, price) for id, owner, price in offers))

    @classmethod
    def equal(cls, providers: int, price: int = 1) -> Roster:
        """Providers without a name that all ask the same: for checks and simulations."""
        return cls(tuple(Offer(f"p{i}", f"p{i}", price) for i in range(providers)))

    def __len__(self) -> int:
        return len(self.offers)

    def _facts(self) -> dict[str, str]:
        prices = self.prices
        return {"offers": f"{len(self):,} ({listed(self.ids)})", "prices": f"{prices.min()} to {prices.max()}"}

    @cached_property
    def ids(self) -> tuple[str, ...]:
        return tuple(offer.id for offer in self.offers)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        return tuple(offer.owner for offer in self.offers)

    @cached_property
    def prices(self) -> Amounts:
        return np.array([offer.price for offer in self.offers], dtype=np.int64)


@dataclass(frozen=True)
class Purse:
    """What is left before a draw: money that has not been asked for, and the most that an access to each may cost."""

    left: int
    quotes: Amounts

    @cached_property
    def affordable(self) -> NDArray[np.bool_]:
        """Whom the rest still pays for, each by itself."""
        return self.quotes <= self.left

    @cached_property
    def pays_everybody(self) -> bool:
        """Whether nobody is too dear by itself, so that no draw needs to look at prices."""
        return bool(self.affordable.all())

    def fitting(self, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """The draws that the rest pays for, each after those before it: a round that does not fit is shortened.

        >>> Purse(6, np.array([5, 1, 3])).fitting(np.array([0, 2, 1, 1])).tolist()
        [0, 1]
        """
        costs = self.quotes[draws].tolist()  # whole numbers of Python, whose sum cannot overflow
        if sum(costs) <= self.left:
            return draws
        left, kept = self.left, []
        for place, cost in enumerate(costs):
            if cost <= left:
                left -= cost
                kept.append(place)
        return draws[kept]
