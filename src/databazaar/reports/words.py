"""How the report writes numbers, money and gain per coin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.runs.report import Report

LEAST, MOST_ZEROS = 0.01, 9
"""A usual gain per coin is shown as `LEAST` or more, in a unit of at most so many zeros."""


def amount(currency: Currency, minor: int) -> str:
    """The number alone, thousands apart."""
    return f"{Decimal(currency.amount(minor)):,f}".replace("-", "−")


def number(value: float, digits: int = 4) -> str:
    """Four significant digits, or all of them before the point; a dash for what is no number.

    >>> number(0.871249), number(-12345.6), number(float("nan"))
    ('0.8712', '−12,346', '–')
    """
    if not math.isfinite(value):
        return "–"
    written = f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.{digits}g}"
    return written.replace("-", "−")


def signed_number(value: float, digits: int = 4) -> str:
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def percent(part: float, whole: float) -> str:
    """A share with one decimal; a dash where there is nothing to share.

    >>> percent(1, 8), percent(0, 0)
    ('12.5 %', '–')
    """
    return f"{100 * part / whole:.1f} %" if whole else "–"


def date(written: str) -> str:
    """A date and time as run.json has it, for people.

    >>> date("2026-01-02T03:04:05+00:00")
    '2026-01-02 03:04:05 UTC'
    """
    return written.replace("T", " ").replace("+00:00", " UTC")


def count(quantity: int, noun: str, plural: str | None = None) -> str:
    """
    >>> count(1, "access", "accesses"), count(2500, "round")
    ('1 access', '2,500 rounds')
    """
    return f"{quantity:,} {noun if quantity == 1 else plural or noun + 's'}"


@dataclass(frozen=True)
class PerCoin:
    """How gains per coin are written: for `coins` units of the currency, which is called `unit`.

    >>> per_coin = PerCoin(1000, "EUR")
    >>> per_coin.unit, per_coin.signed(-0.0000123, 0.0000021), per_coin.plain(None)
    ('1,000 EUR', '−0.0123 ± 0.0021', '–')
    """

    coins: int
    currency: str

    @classmethod
    def of(cls, report: Report) -> PerCoin:
        usual, zeros = sum(abs(one.gain_per_coin or 0.0) * one.share for one in report.brought), 0
        while 0 < usual * 10**zeros < LEAST and zeros < MOST_ZEROS:
            zeros += 1
        return cls(10**zeros, report.currency.name)

    @property
    def unit(self) -> str:
        return f"{self.coins:,} {self.currency}"

    def plain(self, value: float | None, error: float | None = None) -> str:
        """A dash where nothing is known; the error where there is one."""
        if value is None:
            return "–"
        return self._written(value) + ("" if error is None else f" ± {self._written(error)}")

    def signed(self, value: float | None, error: float | None = None) -> str:
        return f"{'+' if value is not None and value > 0 else ''}{self.plain(value, error)}"

    def _written(self, value: float) -> str:
        """Four decimals, so that a column of them lines up; fewer where the numbers are large."""
        shown = value * self.coins
        return f"{shown:.4f}".replace("-", "−") if abs(shown) < 10 else number(shown)
