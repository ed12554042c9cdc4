"""What every access of a run can cost, known before the first round: prices, their changes, caps, limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from databazaar.ledger.rulebook import RuleBook
from databazaar.roster import Amounts, Purse
from databazaar.samplers import Sampler

Stack = list[tuple[int, int | None]]
"""Accesses at a price, and how many of them there are; None where there is no end of them."""


@dataclass(frozen=True)
class Stretch:
    """Rounds on end in which no price changes. `end` is the first round after them; None for the last stretch."""

    first: int
    end: int | None
    quotes: tuple[int, ...]

    def rounds(self, until: int) -> int:
        """How many of its rounds come before this one."""
        return rounds_between(self.first, self.end, until)


@dataclass(frozen=True)
class Fares:
    """A market's money before its first round, in whole numbers of Python, which do not overflow.

    `caps` are the most accesses of each provider. `repeats` says whether the sampler draws somebody twice in a round
    rather than leave a draw out, and `shortens` whether it leaves draws out as it likes.
    """

    budget: int
    per_round: int
    stretches: tuple[Stretch, ...]
    caps: tuple[int | None, ...]
    most_per_access: int | None = None
    most_per_round: int | None = None
    repeats: bool = True
    shortens: bool = False

    @classmethod
    def of(cls, rules: RuleBook) -> Fares:
        terms, changes = rules.terms, rules.terms.roster.change_rounds
        bounds = zip((0, *changes), (*changes, None), strict=True)
        return cls(
            terms.budget,
            terms.per_round,
            tuple(Stretch(first, end, tuple(rules.quotes_at(first).tolist())) for first, end in bounds),
            tuple(offer.most_accesses for offer in terms.roster.offers),
            terms.most_per_access,
            terms.most_per_round,
            repeats=draws_repeat(rules.sampler, rules.start(), terms.per_round, len(terms.roster)),
            shortens=getattr(rules.sampler, "shortens_rounds", False),
        )

    @cached_property
    def unlimited(self) -> bool:
        """Whether the budget and the prices are all there is to look at."""
        limits = (*self.caps, self.most_per_access, self.most_per_round)
        return all(limit is None for limit in limits)

    def whole_rounds_only(self, stretch: Stretch) -> bool:
        """Whether a rest that pays for no whole round goes back, as where all ask the same (see the stop `budget`)."""
        return self.unlimited and not self.shortens and min(stretch.quotes) == max(stretch.quotes)

    @cached_property
    def dearest_allowed(self) -> int:
        """Whoever asks more is never asked."""
        limits = (self.budget, self.most_per_access, self.most_per_round)
        return min(limit for limit in limits if limit is not None)

    def allowed(self, stretch: Stretch) -> list[int]:
        """Who can be asked in this stretch while enough is left."""
        return self._allowed[stretch.first]

    @cached_property
    def _allowed(self) -> dict[int, list[int]]:
        most, caps = self.dearest_allowed, self.caps
        return {s.first: [i for i, q in enumerate(s.quotes) if q <= most and caps[i] != 0] for s in self.stretches}

    def prices_of(self, provider: int) -> list[tuple[int, int | None, int]]:
        """What one provider asks from a round to another, and how much; as few lines as it has prices on end."""
        quotes = self._table[:, provider]
        starts = [0, *(np.flatnonzero(np.diff(quotes)) + 1).tolist()]
        firsts = [self.stretches[place].first for place in starts]
        return list(zip(firsts, [*firsts[1:], None], quotes[starts].tolist(), strict=True))

    @cached_property
    def _table(self) -> Amounts:
        return np.array([stretch.quotes for stretch in self.stretches], dtype=np.int64)

    def stack(self, prices: dict[int, int], *, dearest: bool = False) -> Stack:
        """The accesses of these providers at these prices, the cheapest first or the dearest."""
        order = sorted(prices, key=prices.__getitem__, reverse=dearest)
        return [(prices[i], self.caps[i]) for i in order]


def rounds_between(first: int, end: int | None, until: int) -> int:
    """How many rounds from `first` to `end` come before `until`.

    >>> rounds_between(3, None, 10), rounds_between(3, 5, 10), rounds_between(3, 5, 2)
    (7, 2, 0)
    """
    return max(0, (until if end is None else min(end, until)) - first)


def cost_of(stack: Stack, accesses: int) -> int:
    """What the first accesses of a stack cost, or all of them where there are fewer.

    >>> cost_of([(2, 3), (5, None)], 4)
    11
    """
    cost = 0
    for price, cap in stack:
        taken = accesses if cap is None else min(cap, accesses)
        cost += taken * price
        accesses -= taken
        if not accesses:
            break
    return cost


def count_for(stack: Stack, money: int) -> int:
    """How many accesses of a stack, from its first on, cost no more than this.

    >>> count_for([(2, 3), (5, None)], 17)
    5
    """
    count = 0
    for price, cap in stack:
        taken = money // price if cap is None else min(cap, money // price)
        count += taken
        money -= taken * price
        if cap is None or taken < cap:
            break
    return count


def count_to_spend(stack: Stack, money: int) -> int:
    """How many accesses of a stack, from its first on, it takes to spend at least this, or all that it has.

    >>> count_to_spend([(5, 2), (2, None)], 13)
    4
    """
    count = 0
    for price, cap in stack:
        needed = max(0, -(-money // price))
        taken = needed if cap is None else min(cap, needed)
        count += taken
        money -= taken * price
        if money <= 0:
            break
    return count


def draws_repeat(sampler: Sampler, state: np.ndarray, per_round: int, providers: int) -> bool:
    """Whether a sampler fills a round by drawing somebody twice: it is shown a purse that pays for one provider."""
    quotes = np.full(providers, 2, dtype=np.int64)
    quotes[0] = 1
    return len(sampler.draw(state, np.random.default_rng(0), per_round, Purse(1, quotes))) == per_round
