"""What each provider brought for its pay, and why it was asked as often as it was. All of it from the ledger alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from databazaar.runs.answers import compare
from databazaar.runs.course import Course
from databazaar.runs.why import Reason, Reasons
from databazaar.sequences import OnDemand

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


class AllBrought(OnDemand[Brought]):
    """One for each provider, in the market's order. Each is worked out when it is asked for, and kept: of a million
    providers most have brought nothing."""

    def __init__(self, report: Report) -> None:
        self._report, self._compared, self._course = report, compare(report), Course(report)
        self._reasons = Reasons(report, self._compared, self._course)
        self._end = self._course.at_end(self._course.shares)
        self._made: dict[int, Brought] = {}

    def __len__(self) -> int:
        return len(self._report.payouts)

    def _item(self, place: int) -> Brought:
        if place not in self._made:
            self._made[place] = self._brought(place)
        return self._made[place]

    def _brought(self, i: int) -> Brought:
        compared, scale, line = self._compared, self._compared.scale, self._report.payouts[i]
        gain, unit, spent = float(compared.gain[i]) * scale, 10**self._report.currency.decimals, self._report.spent
        return Brought(
            provider=line.provider,
            gain=gain,
            mean_gain=gain / line.accesses if line.accesses else None,
            mean_price=line.pay / unit / line.accesses if line.accesses else None,
            gain_per_coin=_known(compared.per_coin.value[i], scale),
            gain_per_coin_error=_known(compared.per_coin.error[i], scale),
            ahead=_known(compared.ahead.value[i], scale),
            ahead_error=_known(compared.ahead.error[i], scale),
            share=line.pay / spent if spent else 0.0,
            share_at_start=float(self._course.shares[0, i]),
            share_at_end=float(self._end[i]),
            why=self._reasons[i],
        )


def _known(value: float, scale: float) -> float | None:
    whole = float(value) * scale
    return whole if math.isfinite(whole) else None
