"""Bounds that no run exceeds, whatever it draws: rounds, accesses, what is left over, and what one provider earns.

They hold for every run that its budget ends, with any sampler that keeps its promise to fill a round, or to draw
everybody who is available once. (A round of a sampler that `shortens_rounds` has one draw at the least.) Other stops,
and the consumer, may end a run sooner.

**At the most** T rounds. A round whose draws all fit costs at least K times the cheapest price. A round may be shorter:

- because the rest of the money does not pay for a draw. Whoever is left out that way is too dear until prices change,
  so this happens at most once for every price; and after the first time less than the dearest price is left;
- because a provider is drawn more often than its cap allows. It is then used up: once for every cap that the budget
  can use up;
- because of the pace P. Such a round costs more than P less the dearest price.

With S rounds of the first two kinds, T rounds cost at least Σ (least cost of a round) − S · (what a short one saves). A
second bound counts the cheapest accesses, caps and all: N of them cost no more than the budget, so T ≤ S + (N − S)/K.

**At the least**: a round costs at most P, and at most the K dearest accesses; t rounds at most the K·t dearest. A run
can have ended before round t only if everybody whom the rest pays for is used up, in K·t draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from databazaar.market.quoting.fares import Fares, Stretch, cost_of, count_for, count_to_spend


@dataclass(frozen=True)
class Bounds:
    """The least and the most of each; `short_rounds` of the most rounds may have fewer accesses than wanted."""

    least_rounds: int
    most_rounds: int
    short_rounds: int
    least_accesses: int
    most_accesses: int
    least_unspent: int
    most_unspent: int


def bounds(fares: Fares) -> Bounds:
    walk = _Walk(fares)
    least_rounds = min(_least_rounds(fares, walk.most_rounds), walk.most_rounds)
    most_unspent = _most_unspent(fares, walk, least_rounds)
    spendable = _most_spent(fares, walk.most_rounds)
    ever = _extreme_prices(fares, walk.most_rounds, max)
    needed = count_to_spend(fares.stack(ever, dearest=True), fares.budget - most_unspent)
    most_accesses = min(walk.most_accesses, fares.per_round * walk.most_rounds)
    return Bounds(
        least_rounds,
        walk.most_rounds,
        min(walk.short_rounds, walk.most_rounds),
        min(max(needed, least_rounds), most_accesses),
        most_accesses,
        fares.budget - spendable,
        max(most_unspent, fares.budget - spendable),
    )


class _Walk:
    """Through the stretches, to the round that no run comes to."""

    def __init__(self, fares: Fares) -> None:
        self.most_rounds = self.short_rounds = self.most_accesses = 0
        self.spent: dict[int, _LeastSpent] = {}
        cheapest_yet: dict[int, int] = {}
        cost = singly = saved = 0  # of all rounds so far: at full length, with one draw each; by a short round
        draws = fares.per_round
        used_up = _used_up(fares) if fares.per_round > 1 else 0
        shortened, lowest, highest = 0, fares.budget, 0  # by the rest; the cheapest and the dearest price so far
        shorts, plenty = used_up, fares.budget
        for stretch in fares.stretches:
            self.most_rounds = stretch.first
            allowed = fares.allowed(stretch)
            if not allowed:
                self.spent[stretch.first] = _LeastSpent(singly, cost - used_up * saved, cost - shorts * saved, plenty)
                break
            prices = sorted(stretch.quotes[i] for i in allowed)
            for i in allowed:
                cheapest_yet[i] = min(stretch.quotes[i], cheapest_yet.get(i, stretch.quotes[i]))
            lowest, highest = min(lowest, prices[0]), max(highest, prices[-1])
            shortened += _shortened_by_the_rest(fares, stretch, prices, used_up)
            shorts = used_up + min(shortened, 1 + (highest - 1) // lowest)  # after the first, little is left
            a_round, fewest = _least_of_a_round(fares, prices, used_up)
            draws = min(draws, fewest)
            saved = max(saved, a_round - prices[0])
            plenty = fares.budget - fares.per_round * highest
            before = _LeastSpent(singly, cost - used_up * saved, cost - shorts * saved, plenty, prices[0], a_round)
            self.spent[stretch.first] = before
            by_money = stretch.first + max(0, fares.budget + shorts * saved - cost) // a_round
            self.most_accesses = count_for(fares.stack(cheapest_yet), fares.budget)
            short = min(shorts, self.most_accesses)
            by_count = short + (self.most_accesses - short) // draws
            self.most_rounds, self.short_rounds = min(by_money, by_count), short
            if stretch.end is None or self.most_rounds < stretch.end:
                break
            cost += (stretch.end - stretch.first) * a_round
            singly += (stretch.end - stretch.first) * prices[0]


class _LeastSpent(NamedTuple):
    """What all rounds before a stretch cost at the least, counted in several ways, and what each round of it does.

    `unshortened` holds until `plenty` is spent: the rest shortens no round as long as it pays for the dearest.
    """

    singly: int
    unshortened: int
    shortened: int
    plenty: int
    one_draw: int = 0
    a_round: int = 0

    def after(self, rounds: int) -> int:
        """With so many rounds of the stretch."""
        cost = rounds * self.a_round
        unshortened = min(self.unshortened + cost, self.plenty)
        return max(0, self.singly + rounds * self.one_draw, self.shortened + cost, unshortened)


def _used_up(fares: Fares) -> int:
    """How many caps the budget can use up, the cheapest to use up first."""
    lowest = _extreme_prices(fares, None, min)
    costs = sorted(price * cap for i, price in lowest.items() if (cap := fares.caps[i]) is not None)
    left, count = fares.budget, 0
    for cost in costs:
        left -= cost
        if left < 0:
            break
        count += 1
    return count


def _shortened_by_the_rest(fares: Fares, stretch: Stretch, prices: list[int], used_up: int) -> int:
    """The rounds of a stretch that may be short because of what is left: each puts another price out of reach."""
    if fares.per_round == 1:
        return 0
    shorts = 0 if fares.whole_rounds_only(stretch) else len(set(prices))
    if not fares.repeats:  # too few are within reach to fill a round
        shorts += (prices[min(fares.per_round + used_up, len(prices)) - 1] - 1) // prices[0]
    return shorts


def _least_of_a_round(fares: Fares, prices: list[int], used_up: int) -> tuple[int, int]:
    """What a round costs that neither the rest nor a cap has shortened, and how many draws it has, at the least."""
    per_round, pace, dearest = fares.per_round, fares.most_per_round, prices[-1]
    if fares.shortens:
        return prices[0], 1
    draws = per_round if fares.repeats else min(per_round, max(1, len(prices) - used_up))
    cost = draws * prices[0] if fares.repeats else sum(prices[:draws])
    if pace is None or draws == 1 or per_round * dearest <= pace:
        return cost, draws
    unit = math.gcd(*prices)
    short = max(prices[0], -((dearest - pace - 1) // unit) * unit)  # above P − dearest, and a sum of prices
    return min(cost, short), min(draws, -(-short // dearest))


def _least_rounds(fares: Fares, most: int) -> int:
    """The first round before which a run can have ended."""
    low, spent, dearest_yet = 0, 0, dict[int, int]()
    for stretch in fares.stretches:
        allowed = fares.allowed(stretch)
        for i in allowed:
            dearest_yet[i] = max(stretch.quotes[i], dearest_yet.get(i, 0))
        stack = fares.stack(dearest_yet, dearest=True)
        a_round = most_of_a_round(fares, stretch)
        end = most if stretch.end is None else min(stretch.end, most)
        low, high = stretch.first, end  # the first round in [low, high) that holds, or else high
        while low < high:
            middle = (low + high) // 2
            cost = min(spent + (middle - stretch.first) * a_round, cost_of(stack, fares.per_round * middle))
            if _may_end(fares, stretch, allowed, fares.budget - cost, middle):
                high = middle
            else:
                low = middle + 1
        if low < end or end == most:
            break
        spent += (end - stretch.first) * a_round
    return low


def most_of_a_round(fares: Fares, stretch: Stretch) -> int:
    """What a round of this stretch costs at the most: the dearest accesses, as many as caps and pace allow."""
    times = fares.per_round if fares.repeats else 1
    prices = {i: stretch.quotes[i] for i in fares.allowed(stretch)}
    order = sorted(prices, key=prices.__getitem__, reverse=True)
    caps = ((prices[i], times if (cap := fares.caps[i]) is None else min(cap, times)) for i in order)
    cost = cost_of(list(caps), fares.per_round)
    return cost if fares.most_per_round is None else min(cost, fares.most_per_round)


def _may_end(fares: Fares, stretch: Stretch, allowed: list[int], left: int, round: int) -> bool:
    """Whether a run with so much left can find nobody to ask before this round."""
    if fares.whole_rounds_only(stretch) and left < fares.per_round * stretch.quotes[0]:
        return True
    within_reach = [fares.caps[i] for i in allowed if stretch.quotes[i] <= left]
    if any(cap is None for cap in within_reach):
        return False
    return sum(cap or 0 for cap in within_reach) <= fares.per_round * round


def _most_unspent(fares: Fares, walk: _Walk, least_rounds: int) -> int:
    """The most that is left where a run ends, over the stretches in which it can."""
    lowest, most = _extreme_prices(fares, walk.most_rounds, min), 0
    for stretch in fares.stretches:
        ends_before = stretch.end is not None and stretch.end <= least_rounds
        if ends_before or stretch.first > walk.most_rounds:
            continue
        spent = walk.spent[stretch.first].after(max(0, least_rounds - stretch.first))
        most = max(most, min(fares.budget - spent, _rest(fares, stretch, lowest)))
    unit = _unit(fares, walk.most_rounds)
    return most - (most - fares.budget) % unit if unit else fares.budget


def _rest(fares: Fares, stretch: Stretch, lowest: dict[int, int]) -> int:
    """The most that is left where nobody can be asked at these prices: all whom it would pay for are used up."""
    most = fares.per_round * stretch.quotes[0] - 1 if fares.whole_rounds_only(stretch) else 0
    used_up = 0
    for i in sorted(fares.allowed(stretch), key=stretch.quotes.__getitem__):
        most = max(most, min(stretch.quotes[i] - 1, fares.budget - used_up))
        cap = fares.caps[i]
        if cap is None or i not in lowest:
            return most
        used_up += cap * lowest[i]
        if used_up > fares.budget:
            return most
    return max(most, fares.budget - used_up)


def _most_spent(fares: Fares, rounds: int) -> int:
    """What so many rounds can ask for: no more than the dearest accesses, and a multiple of what all prices share."""
    highest = _extreme_prices(fares, rounds, max)
    by_round = sum(stretch.rounds(rounds) * most_of_a_round(fares, stretch) for stretch in fares.stretches)
    by_count = cost_of(fares.stack(highest, dearest=True), fares.per_round * rounds)
    spent, unit = min(fares.budget, by_round, by_count), _unit(fares, rounds)
    return spent - spent % unit if unit else 0


def _unit(fares: Fares, rounds: int) -> int:
    """What all prices of these rounds are multiples of; 0 where nobody can be asked."""
    return math.gcd(*(s.quotes[i] for s in fares.stretches if s.rounds(rounds) for i in fares.allowed(s)))


def _extreme_prices(fares: Fares, rounds: int | None, extreme: Callable[[int, int], int]) -> dict[int, int]:
    """The lowest or highest price of everybody who can be asked in these rounds."""
    prices: dict[int, int] = {}
    for stretch in fares.stretches:
        if rounds is None or stretch.rounds(rounds):
            for i in fares.allowed(stretch):
                prices[i] = extreme(stretch.quotes[i], prices.get(i, stretch.quotes[i]))
    return prices
