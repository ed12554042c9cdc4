"""The bounds of a quote hold: for every way to draw in small markets, found by trying all of them."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from databazaar.market.quoting.bounds import bounds
from databazaar.market.quoting.fares import Fares, Stretch
from databazaar.market.quoting.outlook import most_earned
from databazaar.roster import Purse

ENDLESS = 10**6


class End(NamedTuple):
    """One way in which a run can end."""

    rounds: int
    accesses: int
    rest: int


class Search:
    """Every run that draws can lead to, by the purse that a run has."""

    def __init__(self, fares: Fares) -> None:
        self.fares = fares
        self.whole = fares.unlimited and not fares.shortens
        self.ends = cache(self._ends)
        self.earned = cache(self._earned)

    def stretch(self, round: int) -> Stretch:
        return next(s for s in self.fares.stretches if s.end is None or round < s.end)

    def rounds(self, round: int, left: int, accesses: tuple[int, ...]) -> set[tuple[int, ...]]:
        """Whom the next round may ask, in any order; nobody where the run ends."""
        fares, quotes = self.fares, self.stretch(round).quotes
        purse = Purse(left, np.array(quotes), np.array(accesses), fares.most_per_access, fares.most_per_round)
        reachable = np.flatnonzero(purse.available).tolist()
        if not reachable or (self.whole and len(set(quotes)) == 1 and left < fares.per_round * quotes[0]):
            return set()
        most = fares.per_round if fares.repeats else min(fares.per_round, len(reachable))
        sizes = range(1, most + 1) if fares.shortens else (most,)
        wanted = (draws for size in sizes for draws in product(reachable, repeat=size))
        kept = (draws for draws in wanted if fares.repeats or len(set(draws)) == len(draws))
        return {tuple(sorted(purse.fitting(np.array(draws)).tolist())) for draws in kept}

    def after(
        self, draws: tuple[int, ...], round: int, left: int, accesses: tuple[int, ...]
    ) -> tuple[int, int, tuple[int, ...]]:
        cost = sum(self.stretch(round).quotes[i] for i in draws)
        return round + 1, left - cost, tuple(n - draws.count(i) for i, n in enumerate(accesses))

    def _ends(self, round: int, left: int, accesses: tuple[int, ...]) -> frozenset[End]:
        found = {
            End(end.rounds + 1, end.accesses + len(draws), end.rest)
            for draws in self.rounds(round, left, accesses)
            for end in self.ends(*self.after(draws, round, left, accesses))
        }
        return frozenset(found or {End(0, 0, left)})

    def _earned(self, provider: int, round: int, left: int, accesses: tuple[int, ...]) -> tuple[int, int]:
        """The most accesses, and the most pay, that one provider can get from here on."""
        quote, found = self.stretch(round).quotes[provider], [(0, 0)]
        for draws in self.rounds(round, left, accesses):
            count, pay = self.earned(provider, *self.after(draws, round, left, accesses))
            found.append((count + draws.count(provider), pay + draws.count(provider) * quote))
        return max(count for count, _ in found), max(pay for _, pay in found)


@st.composite
def small_markets(draw: st.DrawFn) -> Fares:
    n = draw(st.integers(1, 3))
    changes = sorted(draw(st.sets(st.integers(1, 4), max_size=2)))
    prices = [tuple(draw(st.lists(st.integers(1, 6), min_size=n, max_size=n))) for _ in range(len(changes) + 1)]
    stretches = zip([0, *changes], [*changes, None], prices, strict=True)
    per_round = draw(st.integers(1, 3))
    caps = draw(st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=n, max_size=n))
    return Fares(
        budget=draw(st.integers(0, 15)),
        per_round=per_round,
        stretches=tuple(Stretch(*stretch) for stretch in stretches),
        caps=tuple(caps),
        most_per_access=draw(st.one_of(st.none(), st.none(), st.integers(1, 7))),
        most_per_round=draw(st.one_of(st.none(), st.none(), st.integers(1, 12))),
        shortens=(shortens := draw(st.booleans())),
        repeats=draw(st.booleans()) or (per_round > n and not shortens),
    )


@given(small_markets())
@example(Fares(13, 2, (Stretch(0, 2, (1, 5)), Stretch(2, None, (4, 4))), (None, None)))
@settings(max_examples=300, deadline=None)
def test_no_way_to_draw_is_outside_the_bounds(fares: Fares) -> None:
    found, search = bounds(fares), Search(fares)
    start = (0, fares.budget, tuple(ENDLESS if cap is None else cap for cap in fares.caps))
    ends = search.ends(*start)
    rounds, accesses, rests = zip(*ends, strict=True)
    assert found.least_rounds <= min(rounds) and max(rounds) <= found.most_rounds
    assert found.least_accesses <= min(accesses) and max(accesses) <= found.most_accesses
    assert found.least_unspent <= min(rests) and max(rests) <= found.most_unspent
    for provider in range(len(fares.caps)):
        count, pay = most_earned(fares, provider, found.most_rounds)
        most_count, most_pay = search.earned(provider, *start)
        assert most_count <= count and most_pay <= pay <= fares.budget
