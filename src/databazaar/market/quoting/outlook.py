"""Each provider before the first round: what it asks, whether it can be asked, and what it can earn at the most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from databazaar.market.quoting.fares import Fares, cost_of, rounds_between
from databazaar.roster import PriceChange, Roster

OPEN = "open"


@dataclass(frozen=True)
class Outlook:
    """One provider. Prices are the most that an access may cost, in minor units; changes are those that are announced,
    by rounds as the ledger counts them.

    `can_sell` accesses and `can_earn` are the most that this run can bring it. `open` says whether it can be asked at
    all, and `status` why not, or from which round on, counted from 1.
    """

    id: str
    owner: str
    price: int
    price_changes: tuple[PriceChange, ...]
    most_accesses: int | None
    can_sell: int
    can_earn: int
    open: bool
    status: str


def outlooks(fares: Fares, roster: Roster, rounds: int) -> tuple[Outlook, ...]:
    """Everybody who can be asked, the cheapest first, then the others; `rounds` are the most that there can be."""
    found = [_outlook(fares, roster, place, rounds) for place in range(len(roster))]
    return tuple(sorted(found, key=lambda outlook: (not outlook.open, outlook.price)))


def _outlook(fares: Fares, roster: Roster, place: int, rounds: int) -> Outlook:
    offer = roster.offers[place]
    (_, _, now), *later = fares.prices_of(place)
    sold, earned = most_earned(fares, place, rounds)
    return Outlook(
        offer.id,
        offer.owner,
        now,
        tuple(PriceChange(first, quote) for first, _, quote in later),
        offer.most_accesses,
        sold,
        earned,
        sold > 0,
        _status(fares, place, rounds),
    )


def _status(fares: Fares, place: int, rounds: int) -> str:
    if fares.caps[place] == 0:
        return "offers no access"
    prices = fares.prices_of(place)
    reasons = [(first, too_dear(fares, quote)) for first, _, quote in prices if first <= rounds]
    turns = [after for before, after in pairwise(reasons) if bool(before[1]) != bool(after[1])]
    later = [f"{'too dear' if why else OPEN} from round {first + 1} on" for first, why in turns]
    return ", ".join([reasons[0][1], *later] if reasons[0][1] else later or [OPEN])


def most_earned(fares: Fares, provider: int, rounds: int) -> tuple[int, int]:
    """The most accesses that a provider can sell in so many rounds, and the most that it can be paid."""
    a_round, pace = fares.per_round if fares.repeats else 1, fares.most_per_round
    sold = [
        (quote, played * (a_round if pace is None else min(a_round, pace // quote)))
        for first, end, quote in fares.prices_of(provider)
        if quote <= fares.dearest_allowed and (played := rounds_between(first, end, rounds))
    ]
    cap = fares.caps[provider]
    if not sold or cap == 0:
        return 0, 0
    count = min(sum(times for _, times in sold), fares.budget // min(sold)[0])
    count = count if cap is None else min(count, cap)
    earned = min(fares.budget, cost_of(sorted(sold, reverse=True), count))
    return count, earned - earned % math.gcd(*(quote for quote, _ in sold))


def too_dear(fares: Fares, quote: int) -> str:
    """Which limit this price is above; nothing where it is above none."""
    if fares.most_per_access is not None and quote > fares.most_per_access:
        return "above most_per_access"
    if quote > fares.budget:
        return "above the budget"
    if fares.most_per_round is not None and quote > fares.most_per_round:
        return "dearer than most_per_round"
    return ""
