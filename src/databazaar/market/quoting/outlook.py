"""Each provider before the first round: what it asks, whether it can be asked, and what it may earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from databazaar.ledger.rulebook import RuleBook
from databazaar.ledger.terms import Terms
from databazaar.market.quoting.simulation import Run
from databazaar.roster import PriceChange

OPEN = "open"


@dataclass(frozen=True)
class Range:
    """What simulated runs come to: the median of those with qualities by chance, and the least and the most of all."""

    low: int
    median: int
    high: int

    @classmethod
    def of(cls, chance: Sequence[int], extreme: Sequence[int]) -> Range:
        """
        >>> str(Range.of([5, 3, 4], [2, 1_000])), str(Range.of([3], [3]))
        ('about 4 (2 to 1,000)', '3')
        """
        return cls(min(*chance, *extreme), sorted(chance)[len(chance) // 2], max(*chance, *extreme))

    @classmethod
    def wide(cls, chance: Sequence[int], extreme: Sequence[int]) -> Range:
        """The same, and beyond the least and the most as much as a quarter of how far chance has spread the runs: of
        few runs, the ends are not as far apart as those of many."""
        found, more = cls.of(chance, extreme), -((min(chance) - max(chance)) // 4)
        return cls(max(min(1, found.low), found.low - more), found.median, found.high + more)

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"about {self.median:,} ({self.low:,} to {self.high:,})"


@dataclass(frozen=True)
class Outlook:
    """One provider. Prices are the most that an access may cost, in minor units; changes are those that are announced,
    by rounds as the ledger counts them.

    `accesses` and `pay` are what the simulated runs bring it, if all of its answers are valid. `open` says whether it
    can be asked at all, and `status` why not, or from which round on, counted from 1.
    """

    id: str
    owner: str
    price: int
    price_changes: tuple[PriceChange, ...]
    most_accesses: int | None
    accesses: Range
    pay: Range
    open: bool
    status: str


def outlooks(rules: RuleBook, chance: Sequence[Run], extreme: Sequence[Run]) -> tuple[Outlook, ...]:
    """Everybody who can be asked, the cheapest first, then the others."""
    terms, roster = rules.terms, rules.terms.roster
    last = max(run.rounds for run in (*chance, *extreme))
    starts = [0, *(round for round in roster.change_rounds if round <= last)]
    quotes = np.stack([rules.quotes_at(round) for round in (0, *roster.change_rounds)])
    figures = [[np.stack([run.accesses for run in runs]) for runs in (chance, extreme)]]
    figures.append([np.stack([run.earned for run in runs]) for runs in (chance, extreme)])
    found = []
    for place, (offer, prices) in enumerate(zip(roster.offers, quotes.T.tolist(), strict=True)):
        at = list(zip((0, *roster.change_rounds), prices, strict=True))
        changes = tuple(PriceChange(*now) for before, now in pairwise(at) if before[1] != now[1])
        reasons = [(round, _too_dear(terms, price)) for round, price in at[: len(starts)]]
        accesses, pay = (Range.of(*(runs[:, place].tolist() for runs in both)) for both in figures)
        open_ = offer.most_accesses != 0 and not all(why for _, why in reasons)
        status = _status(reasons) if offer.most_accesses != 0 else "offers no access"
        who = offer.id, offer.owner, prices[0], changes, offer.most_accesses
        found.append(Outlook(*who, accesses, pay, open_, status))
    return tuple(sorted(found, key=lambda outlook: (not outlook.open, outlook.price)))


def _status(reasons: Sequence[tuple[int, str]]) -> str:
    """In words, from whether a provider is too dear from each of these rounds on."""
    turns = [after for before, after in pairwise(reasons) if bool(before[1]) != bool(after[1])]
    later = [f"{'too dear' if why else OPEN} from round {round + 1} on" for round, why in turns]
    return ", ".join([reasons[0][1], *later] if reasons[0][1] else later or [OPEN])


def _too_dear(terms: Terms, price: int) -> str:
    """Which limit this price is above; nothing where it is above none."""
    if terms.most_per_access is not None and price > terms.most_per_access:
        return "above most_per_access"
    if price > terms.budget:
        return "above the budget"
    if terms.most_per_round is not None and price > terms.most_per_round:
        return "dearer than most_per_round"
    return ""
