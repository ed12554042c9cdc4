"""Who sells, under which owner, at what price and how often; and what a consumer has left to spend on it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.display import Displayed, listed
from databazaar.errors import BazaarError

Amounts = NDArray[np.int64]
"""Money in minor units, one number per provider or per draw."""


class PriceChange(NamedTuple):
    """From this round on an access costs this much. The first round is 0, as in the ledger."""

    from_round: int
    price: int


@dataclass(frozen=True)
class ProviderTerms:
    """One provider as the market's rules see it: `price` is what an access costs, in minor units.

    `most_accesses` is how often one job may draw it; every draw counts, also one whose reply failed. `price_changes`
    are announced before the first round, in the order of their rounds.

    >>> offer = ProviderTerms("north", "Bank N", 2, price_changes=(PriceChange(10, 3), PriceChange(20, 1)))
    >>> [offer.price_at(round) for round in (0, 9, 10, 19, 20)]
    [2, 2, 3, 3, 1]
    """

    id: str
    owner: str
    price: int
    most_accesses: int | None = None
    price_changes: tuple[PriceChange, ...] = ()

    def __post_init__(self) -> None:
        if self.plain:
            return  # as nearly all
        most, rounds = self.most_accesses, [change.from_round for change in self.price_changes]
        if most is not None and not _whole(most, 0):
            raise BazaarError(f"provider {self.id}: most_accesses = {most!r} must be a whole number, or left out")
        for change in self.price_changes:
            if not _whole(change.from_round, 1):
                raise BazaarError(
                    f"provider {self.id}: from_round = {change.from_round!r} of a price change must be a whole number "
                    "of at least 1: the price itself is that of the first round, 0"
                )
            if not _whole(change.price, 1) or change.price >= 2**63:
                raise BazaarError(
                    f"provider {self.id}: price = {change.price!r} from round {change.from_round} on must be a whole "
                    "number of minor units, one or more, and below 2^63"
                )
        if any(before >= after for before, after in pairwise(rounds)):
            raise BazaarError(
                f"provider {self.id}: price changes from rounds {listed(rounds)} must come in their order, "
                "and one for each round"
            )

    @property
    def plain(self) -> bool:
        """Whether it says nothing beside its price."""
        return self.most_accesses is None and not self.price_changes

    def price_at(self, round: int) -> int:
        """What an access costs in this round."""
        prices = [change.price for change in self.price_changes if change.from_round <= round]
        return prices[-1] if prices else self.price

    def at(self, round: int) -> ProviderTerms:
        """The offer as it stands in this round, with the changes that are still to come."""
        if not self.price_changes or self.price_changes[0].from_round > round:
            return self
        later = tuple(change for change in self.price_changes if change.from_round > round)
        return replace(self, price=self.price_at(round), price_changes=later)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class Roster(Displayed):
    """All offers of a market. A provider's place here is its index in draws, distributions and gains.

    >>> roster = Roster.of([("north", "Bank N", 2), ("south", "Bank S", 5)])
    >>> roster.ids, roster.owners, roster.prices.tolist()
    (('north', 'south'), ('Bank N', 'Bank S'), [2, 5])
    """

    def __init__(self, offers: Iterable[ProviderTerms]) -> None:
        self.offers = tuple(offers)
        self.ids = tuple(offer.id for offer in self.offers)
        if not self.ids:
            raise BazaarError("a market needs at least one provider")
        if len(set(self.ids)) < len(self.ids):
            again = next(id for id, times in Counter(self.ids).items() if times > 1)
            raise BazaarError(f"two providers are called {again}: give each an id of its own")

    @classmethod
    def of(cls, offers: Iterable[tuple[str, str, int]]) -> Roster:
        return cls(ProviderTerms(id, owner, price) for id, owner, price in offers)

    @classmethod
    def equal(cls, providers: int, price: int = 1) -> Roster:
        """Providers without a name that all ask the same: for checks and simulations."""
        return cls.of((f"p{i}", f"p{i}", price) for i in range(providers))

    def __len__(self) -> int:
        return len(self.offers)

    def __eq__(self, other: object) -> bool:
        return self.offers == other.offers if isinstance(other, Roster) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.offers)

    def _facts(self) -> dict[str, str]:
        prices = self.prices
        return {"offers": f"{len(self):,} ({listed(self.ids)})", "prices": f"{prices.min()} to {prices.max()}"}

    @cached_property
    def owners(self) -> tuple[str, ...]:
        return tuple(offer.owner for offer in self.offers)

    @cached_property
    def prices(self) -> Amounts:
        return np.array([offer.price for offer in self.offers], dtype=np.int64)

    @cached_property
    def most_accesses(self) -> Amounts | None:
        """How often each provider may be drawn: as often as anybody can count to where it has no cap; None where
        nobody has one."""
        caps, endless = [offer.most_accesses for offer in self.offers], 2**63 - 1
        if all(cap is None for cap in caps):
            return None
        return np.array([endless if cap is None else min(cap, endless) for cap in caps], dtype=np.int64)

    @cached_property
    def change_rounds(self) -> tuple[int, ...]:
        """The rounds from which on some price is another, in their order."""
        return tuple(sorted({change.from_round for offer in self.offers for change in offer.price_changes}))

    def changes_by(self, round: int) -> int:
        """How many of those rounds have come: rounds of the same number have the same prices."""
        return bisect_right(self.change_rounds, round)

    def at(self, round: int) -> Roster:
        """The same offers at the prices of this round: this very roster where no change has come yet."""
        return Roster(offer.at(round) for offer in self.offers) if self.changes_by(round) else self


@dataclass(frozen=True)
class RoundBudget:
    """What a round may be drawn from.

    `left` is all money that has not been asked for, and `quotes` the most that an access to each may cost now.
    `accesses_left` is how often each may still be drawn; None where nobody has a cap. `most_per_access` and
    `most_per_round` are the consumer's limits, where it has set some.
    """

    left: int
    quotes: Amounts
    accesses_left: Amounts | None = None
    most_per_access: int | None = None
    most_per_round: int | None = None

    @property
    def unlimited(self) -> bool:
        """Whether money is all that keeps anybody from being asked."""
        return self.accesses_left is None and self.most_per_access is None and self.most_per_round is None

    @property
    def money(self) -> int:
        """What this round may cost."""
        return self.left if self.most_per_round is None else min(self.left, self.most_per_round)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Who can be asked, each by itself: paid for by the round's money, not above the most per access, not used up.

        >>> RoundBudget(9, np.array([5, 1, 3]), np.array([7, 0, 1]), most_per_access=4).available.tolist()
        [False, False, True]
        """
        paid = self.quotes <= self.dearest
        return paid if self.accesses_left is None else paid & (self.accesses_left > 0)

    @cached_property
    def everybody(self) -> bool:
        """Whether all are available, so that no draw needs to look at prices."""
        return bool(self.available.all())

    @property
    def anybody(self) -> bool:
        """Whether somebody is available."""
        return bool(self.available.any())

    @property
    def dearest(self) -> int:
        """The most that an access may cost."""
        return self.money if self.most_per_access is None else min(self.money, self.most_per_access)

    def fitting(self, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        """The draws that can be asked and paid for, each after those before it: a round that does not fit is shortened.

        >>> RoundBudget(6, np.array([5, 1, 3])).fitting(np.array([0, 2, 1, 1])).tolist()
        [0, 1]
        >>> RoundBudget(6, np.array([5, 1, 3]), np.array([0, 1, 9])).fitting(np.array([0, 2, 1, 1])).tolist()
        [2, 1]
        """
        costs = self.quotes.take(draws).tolist()  # whole numbers of Python, whose sum cannot overflow
        if sum(costs) <= self.money and self.accesses_left is None and self.everybody:
            return draws
        left, dearest, kept = self.money, self.dearest, []
        used: Counter[int] = Counter()
        for place, (provider, cost) in enumerate(zip(draws.tolist(), costs, strict=True)):
            fits = cost <= left and cost <= dearest
            if fits and (self.accesses_left is None or used[provider] < self.accesses_left[provider]):
                left -= cost
                used[provider] += 1
                kept.append(place)
        return draws[kept]
