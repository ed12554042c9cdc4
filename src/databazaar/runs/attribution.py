"""What each provider brought for its pay, beside what the others brought at about the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from databazaar.ledger.rounds import Numbers, Places
from databazaar.runs.explanation import Reason, Reasons
from databazaar.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from databazaar.runs.report import Report

STRETCH = 8
"""Answers are compared within stretches of whole rounds with so many draws or more, because gains shrink over time."""


@dataclass(frozen=True)
class Answers:
    """Paid accesses, one line each or summed: when, whose, what they brought, for how many coins, and how many."""

    when: Places
    who: Places
    gain: Numbers
    coins: Numbers
    count: Numbers

    def summed(self, stretches: Places) -> Answers:
        """One line for each provider in each stretch; `stretches` says in which one a round lies."""
        when = stretches[self.when]
        size = int(self.who.max(initial=0)) + 1
        keys, line = np.unique(when * size + self.who, return_inverse=True)
        gain, coins, count = (sums(line, one, len(keys)) for one in (self.gain, self.coins, self.count))
        return Answers(keys // size, keys % size, gain, coins, count)

    def others(self) -> Answers:
        """What the others brought in each line's stretch."""
        gain, coins, count = (sums(self.when, one)[self.when] - one for one in (self.gain, self.coins, self.count))
        return Answers(self.when, self.who, gain, coins, count)

    def where(self, kept: NDArray[np.bool_]) -> Answers:
        return Answers(self.when[kept], self.who[kept], self.gain[kept], self.coins[kept], self.count[kept])


def sums(places: Places, values: Numbers, size: int = 1) -> Numbers:
    return np.bincount(places, values, size).astype(np.float64)


class Ratio(NamedTuple):
    """Σ top / Σ bottom for each provider, its standard error over independent lines, their number, and the effective
    number of equal ones."""

    value: Numbers
    error: Numbers
    lines: Places
    equal_lines: Numbers

    @classmethod
    def of(cls, who: Places, top: Numbers, bottom: Numbers, providers: int) -> Ratio:
        """The error is that of the delta method with HC2 weights. NaN is what there is nothing to divide by."""
        lines, total = np.bincount(who, minlength=providers), sums(who, bottom, providers)
        with np.errstate(divide="ignore", invalid="ignore"):
            value = sums(who, top, providers) / total
            squares = (top - value[who] * bottom) ** 2 / (1 - bottom / total[who])
            error = np.sqrt(sums(who, squares, providers)) / total
            equal = total**2 / sums(who, bottom**2, providers)
        return cls(value, np.where(lines > 1, error, np.nan), lines, equal)


class ProviderComparison(NamedTuple):
    """All that answers tell of each provider, with gains in units of `scale`, the largest of them. `per_coin` is what a
    coin brought, and `ahead` how much more that is than what a coin paid to the others brought at the same time.
    `steadily` is the same with every stretch in units of its own gains, which is tested against chance; `steadily_each`
    is that for an access. `dearness` is the price beside that of the others."""

    scale: float
    gain: Numbers
    per_coin: Ratio
    ahead: Ratio
    steadily: Ratio
    steadily_each: Ratio
    dearness: Numbers


def compare(report: Report) -> ProviderComparison:
    """Sets every provider beside the others, stretch by stretch."""
    n, unit = len(report.payouts), 10**report.currency.decimals
    rounds = report.columns
    valid = ~np.isnan(rounds.gains)
    when, who, gain = rounds.when[valid], rounds.providers[valid], rounds.gains[valid]
    scale = float(np.abs(gain).max(initial=0.0)) or 1.0
    gain = gain / scale
    coins = np.array([paid / unit for paid in rounds.earned], dtype=np.float64)[valid]
    answers = Answers(when, who, gain, coins, np.ones(len(who)))
    each = answers.summed(np.arange(len(rounds)))
    own = answers.summed(_stretches(report))
    beside = own.others()
    own, beside = own.where(beside.coins > 0), beside.where(beside.coins > 0)
    ahead = own.gain - own.coins * beside.gain / beside.coins
    ahead_each = own.gain - own.count * beside.gain / beside.count
    usual = own.count * beside.coins / beside.count  # what the others would have been paid for as many accesses
    return ProviderComparison(
        scale=scale,
        gain=sums(who, gain, n),
        per_coin=Ratio.of(each.who, each.gain, each.coins, n),
        ahead=Ratio.of(own.who, ahead, own.coins, n),
        steadily=Ratio.of(own.who, ahead / _usual_size(own, own.coins), own.coins, n),
        steadily_each=Ratio.of(own.who, ahead_each / _usual_size(own, own.count), own.count, n),
        dearness=Ratio.of(own.who, own.coins, usual, n).value,
    )


def _usual_size(lines: Answers, per: Numbers) -> Numbers:
    """The root mean square of what one of `per` brought in each line's stretch; 1 where nobody brought anything."""
    each = np.divide(lines.gain, per, out=np.zeros_like(per), where=per > 0)
    squares, weights = (sums(lines.when, one) for one in (per * each**2, per))
    size: Numbers = np.sqrt(squares[lines.when] / np.maximum(weights[lines.when], np.finfo(np.float64).tiny))
    return np.where(size > 0, size, 1.0)


def _stretches(report: Report) -> Places:
    """In which stretch each round lies. What is left over at the end belongs to the last one."""
    draws = np.cumsum([0, *report.columns.sizes.tolist()]).tolist()
    stretch, begun, found = 0, 0, []
    for before in draws[:-1]:
        if before - begun >= STRETCH and draws[-1] - before >= STRETCH:
            stretch, begun = stretch + 1, before
        found.append(stretch)
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True)
class Attribution:
    """What one provider brought for its pay, and why it was asked as often as it was. A coin is one unit of the
    currency. `gain` is the sum over all paid accesses; `mean_gain` and `mean_price` are those of one access. `ahead` is
    how much more a coin brought than one that was paid to the others at about the same time. Errors are standard
    errors. `share` is the provider's part of all pay; at the start and at the end it is the part of the money that the
    sampler's chances would give it. None is what nothing is known of."""

    provider: str
    gain: float
    mean_gain: float | None
    mean_price: float | None
    gain_per_coin: float | None
    gain_per_coin_error: float | None
    ahead: float | None
    ahead_error: float | None
    share: float
    share_at_start: float
    share_at_end: float
    why: Reason


NUMBERS = tuple(field.name for field in fields(Attribution) if field.name not in ("provider", "gain", "why"))
"""What tables tell of a provider, by name."""


def all_brought(report: Report) -> Sequence[Attribution]:
    """One for each provider, in the market's order, each made when it is asked for, and kept."""
    compared, trajectory = compare(report), Trajectory(report)
    reasons, at_end = Reasons(report, compared, trajectory), trajectory.at_end(trajectory.shares)
    scale, unit, spent = compared.scale, 10**report.currency.decimals, report.spent

    def known(value: float) -> float | None:
        whole = float(value) * scale
        return whole if math.isfinite(whole) else None

    def brought(i: int) -> Attribution:
        line, gain = report.payouts[i], float(compared.gain[i]) * scale
        return Attribution(
            provider=line.provider,
            gain=gain,
            mean_gain=gain / line.accesses if line.accesses else None,
            mean_price=line.pay / unit / line.accesses if line.accesses else None,
            gain_per_coin=known(compared.per_coin.value[i]),
            gain_per_coin_error=known(compared.per_coin.error[i]),
            ahead=known(compared.ahead.value[i]),
            ahead_error=known(compared.ahead.error[i]),
            share=line.pay / spent if spent else 0.0,
            share_at_start=float(trajectory.shares[0, i]),
            share_at_end=float(at_end[i]),
            why=reasons[i],
        )

    return tuple(brought(i) for i in range(len(report.payouts)))
