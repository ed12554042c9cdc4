"""The paper's way to pay: one price for each access that was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from databazaar.roster import Amounts, Roster


@dataclass(frozen=True)
class PricePerAccess:
    """Every valid reply is paid its provider's price, whatever it brought: Algorithm 1, line 7.

    >>> PricePerAccess().settle([2, 5, 2], [0.1, None, -0.3])
    [2, 0, 2]
    """

    kind: ClassVar[str] = "price-per-access"

    def quote(self, roster: Roster) -> Amounts:
        return roster.prices

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return [0 if gain is None else quote for quote, gain in zip(quotes, gains, strict=True)]
