"""Pay that follows the amount of data: a price for every row that an access learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.payments.price_per_access import PricePerAccess
from databazaar.registry import MarketFacts
from databazaar.roster import Amounts, Roster
from databazaar.settings import check_settings, setting


@dataclass(frozen=True)
class PricePerRow(PricePerAccess):
    """Every valid reply is paid its provider's price for each of the rows that an access to it uses.

    `rows` are those numbers by provider, in the market's order: what the consumer's side has counted before the first
    round, never what a reply says. They stand in the terms, so an audit knows them.

    >>> rule = PricePerRow(rows=(200, 50))
    >>> rule.quote(Roster.of([("north", "Bank N", 2), ("south", "Bank S", 5)])).tolist()
    [400, 250]
    """

    rows: tuple[int, ...] = setting(help="those of each provider, in the market's order", at_least=1, in_files=False)
    kind: ClassVar[str] = "price-per-row"

    def __post_init__(self) -> None:
        check_settings(self, "payment price-per-row")

    @classmethod
    def from_market(cls, given: Mapping[str, Any], market: MarketFacts) -> PricePerRow:
        """As market.toml has it: the rows are counted when the files are read."""
        return cls(market.rows)

    def quote(self, roster: Roster) -> Amounts:
        if len(self.rows) != len(roster):
            raise BazaarError(
                f"payment price-per-row: rows has {len(self.rows)} numbers and the market {len(roster)} providers: "
                "give one for each"
            )
        quotes = [price * rows for price, rows in zip(roster.prices.tolist(), self.rows, strict=True)]
        if max(quotes) >= 2**63:
            raise BazaarError("payment price-per-row: a price times its rows is more than a ledger holds: lower it")
        return np.array(quotes, dtype=np.int64)
