"""What each provider brought for its pay, and why it was asked as often as it was. All of it from the ledger alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from databazaar.runs.answers import compare
from databazaar.runs.course import Course
from databazaar.runs.why import Reason, reasons

if TYPE_CHECKING:
    from databazaar.runs.report import Report


NUMBERS = (
    "mean_gain",
    "mean_price",
    "gain_per_coin",
    "gain_per_coin_error",
    "ahead",
    "ahead_error",
    "share",
    "share_at_start",
    "share_at_end",
)
"""What tables tell of a provider, by name."""


@dataclass(frozen=True)
class Brought:
    """What one provider brought for its pay, and why it was asked as often as it was.

    A coin is one unit of the currency. `gain` is the sum over all paid accesses; `mean_gain` and `mean_price` are those
    of one access. `ahead` is how much more a coin brought than one that was paid to the others at about the same time.
    Errors are standard errors. `share` is the provider's part of all pay; at the start and at the end it is the part
    of the money that the sampler's chances would give it. None is what nothing is known of.
    """

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


def brought_by(report: Report) -> tuple[Brought, ...]:
    """One for each provider, in the market's order."""
    compared, course = compare(report), Course(report)
    told = reasons(report, compared, course)
    end, scale, unit = course.at_end(course.shares), compared.scale, 10**report.currency.decimals
    found = []
    for i, line in enumerate(report.payouts):
        gain = float(compared.gain[i]) * scale
        found.append(
            Brought(
                provider=line.provider,
                gain=gain,
                mean_gain=gain / line.accesses if line.accesses else None,
                mean_price=line.pay / unit / line.accesses if line.accesses else None,
                gain_per_coin=_known(compared.per_coin.value[i], scale),
                gain_per_coin_error=_known(compared.per_coin.error[i], scale),
                ahead=_known(compared.ahead.value[i], scale),
                ahead_error=_known(compared.ahead.error[i], scale),
                share=line.pay / report.spent if report.spent else 0.0,
                share_at_start=float(course.shares[0, i]),
                share_at_end=float(end[i]),
                why=told[i],
            )
        )
    return tuple(found)


def _known(value: float, scale: float) -> float | None:
    whole = float(value) * scale
    return whole if math.isfinite(whole) else None
