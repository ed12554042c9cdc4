"""Integer money. Every amount is an int in minor units; only reading and writing know about decimals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from databazaar.errors import BazaarError

_WRITTEN = re.compile(r"-?[0-9]{1,24}(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Currency:
    """How amounts are written: `Currency("EUR", 2)` shows 1250 minor units as ``12.50 EUR``.

    >>> Currency("EUR", 2).format(1250)
    '12.50 EUR'
    >>> Currency("EUR", 2).parse("12.5")
    1250
    >>> Currency().format(7)
    '7 credits'
    """

    name: str = "credits"
    decimals: int = 0

    def amount(self, minor: int) -> str:
        """The number alone, without the currency's name."""
        return f"{Decimal(minor).scaleb(-self.decimals):f}"

    def format(self, minor: int) -> str:
        return f"{self.amount(minor)} {self.name}"

    def in_words(self, minor: int) -> str:
        """As `format`, but a single credit is no plural. Ledgers hold sentences with `format`, so that stays as it is.

        >>> Currency().in_words(1), Currency("credits", 2).in_words(100), Currency("francs").in_words(1)
        ('1 credit', '1.00 credits', '1 francs')
        """
        return "1 credit" if (self.name, self.amount(minor)) == ("credits", "1") else self.format(minor)

    def parse(self, written: int | str, field: str = "amount") -> int:
        """Minor units of an amount as a person writes it. Floats are refused: they do not hold cents exactly."""
        if isinstance(written, int) and written.bit_length() > 128:
            raise BazaarError(f"{field} has more digits than any ledger holds: write a smaller amount")
        try:
            if isinstance(written, bool | float) or not _WRITTEN.fullmatch(str(written)):
                raise InvalidOperation
            minor = Decimal(written).scaleb(self.decimals)
            if minor != minor.to_integral_value():
                raise InvalidOperation
        except InvalidOperation:
            raise BazaarError(
                f"{field} = {written!r} is not an amount with at most {self.decimals} decimals: "
                f'write a whole number, or text such as "{self.amount(1050 * 10**self.decimals // 100)}"'
            ) from None
        if minor < 0:
            raise BazaarError(f"{field} = {written!r} is negative: write an amount of zero or more")
        return int(minor)
