"""How the report writes numbers and money."""

from __future__ import annotations

import math
from decimal import Decimal

from databazaar.money import Currency


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
