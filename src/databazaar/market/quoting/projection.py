"""What a run comes to in the mean: while money is spread evenly, and until everybody has been asked once."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from databazaar.market.quoting.fares import Fares
from databazaar.samplers.protocol import Vector

GRID = 4000
"""How finely the time until everybody is drawn is added up."""


class Projection(NamedTuple):
    """About so many rounds and accesses; `draws` are those of the first rounds, in the mean."""

    rounds: int
    accesses: int
    draws: float


def at_even_shares(fares: Fares) -> Projection:
    """A run that gives all who can be asked the same share of the money, and so draws them by 1 / price.

    Amounts flow: it goes on at the same pace until a cap is used up, a price changes, or somebody becomes too dear for
    what is left, and from there on at another. A sampler that shortens its rounds asks nobody twice in one.
    """
    left, round, accesses, first = float(fares.budget), 0, 0.0, 0.0
    caps = np.array([math.inf if cap is None else cap for cap in fares.caps], dtype=np.float64)
    pace = math.inf if fares.most_per_round is None else fares.most_per_round
    limit = pace if fares.most_per_access is None else min(pace, fares.most_per_access)
    stretches = iter(fares.stretches)
    stretch = next(stretches)
    while True:
        if stretch.end == round:
            stretch = next(stretches)
        quotes = np.array(stretch.quotes, dtype=np.float64)
        asked = (quotes <= min(left, limit)) & (caps >= 0.5)
        if not asked.any() or (fares.whole_rounds_only(stretch) and left < fares.per_round * quotes[0]):
            return Projection(round, int(accesses + 0.5), first)
        chances = np.where(asked, 1 / quotes, 0.0)
        chances /= chances.sum()
        if fares.shortens:
            wanted = np.minimum(1.0, fares.per_round * chances)
            most, chances = float(wanted.sum()), wanted / wanted.sum()
        else:
            most = fares.per_round if fares.repeats else min(fares.per_round, int(asked.sum()))
        a_draw = float(chances @ quotes)
        draws = min(most, min(pace, left) / a_draw)
        first = first or draws
        used_up = float((caps[asked] / (draws * chances[asked])).min())
        too_dear = (left - float(quotes[asked].max())) / (draws * a_draw)
        changed = math.inf if stretch.end is None else stretch.end - round
        told_apart = math.ceil(2 * math.ulp(left) / (draws * a_draw))  # rounds that a huge sum shows at all
        rounds = max(1, math.floor(min(max(told_apart, min(used_up, too_dear)), changed)))
        caps -= rounds * draws * chances
        left -= rounds * draws * a_draw
        accesses += rounds * draws
        round += rounds


def draws_until_all_seen(chances: Vector) -> float:
    """How many independent draws it takes in the mean until everybody with a chance was drawn once.

    The coupon collector with unequal chances: ∫ 1 − Π (1 − exp(−p_i x)) dx from 0 on.

    >>> round(draws_until_all_seen(np.full(10, 0.1)), 1)  # 10 (1 + 1/2 + … + 1/10)
    29.3
    """
    p = chances[chances > 0]
    longest = (math.log(len(p)) + 30.0) / float(p.min())
    x = np.concatenate([[0.0], np.geomspace(longest * 1e-9, longest, GRID)])
    missing = np.ones_like(x)
    for start in range(1, len(x), 500):  # a part at a time, so that 10,000 providers fit
        unseen = np.exp(-np.outer(x[start : start + 500], p))
        with np.errstate(divide="ignore"):  # log 0, where a chance is so small that nothing has happened yet
            missing[start : start + 500] = -np.expm1(np.log1p(-unseen).sum(axis=1))
    return float(((missing[1:] + missing[:-1]) / 2 * np.diff(x)).sum())
