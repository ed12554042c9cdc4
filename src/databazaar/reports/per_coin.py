"""Gain per coin for people: in a unit of money that leaves few zeros to count."""

from __future__ import annotations

from dataclasses import dataclass

from databazaar.reports.words import number
from databazaar.runs.report import Report

LEAST = 0.01
"""What is usual is shown as this or more."""
MOST_ZEROS = 9


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
        usual, zeros = sum(abs(one.gain_per_coin or 0.0) * one.share for one in report.brought_by_asked), 0
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
