"""How the report writes numbers, money and other people's names."""

from __future__ import annotations

import html
import unicodedata
from decimal import Decimal

from databazaar.money import Currency


def printable(text: object) -> str:
    """The text without characters that no page or file may hold: controls, surrogates, non-characters.

    >>> printable("north\\x00bank")
    'north�bank'
    """
    return "".join(
        " " if character.isspace() else "\ufffd" if unicodedata.category(character) in {"Cc", "Cs", "Cn"} else character
        for character in str(text)
    )


def escape(text: object) -> str:
    """Safe inside an HTML element and inside a quoted attribute.

    >>> escape('"><img>')
    '&quot;&gt;&lt;img&gt;'
    """
    return html.escape(printable(text), quote=True)


def named(text: object) -> str:
    """A name chosen by somebody else, escaped and isolated so that it cannot reorder the text around it."""
    return f"<bdi>{escape(text) if str(text).strip() else '(no name)'}</bdi>"


def money(currency: Currency, minor: int) -> str:
    """An amount with its currency and thousands apart.

    >>> money(Currency("EUR", 2), 1234550)
    '12,345.50 EUR'
    """
    return f"{amount(currency, minor)} {printable(currency.name)}"


def amount(currency: Currency, minor: int) -> str:
    """The number alone, thousands apart."""
    return f"{Decimal(currency.amount(minor)):,f}".replace("-", "−")


def signed_amount(currency: Currency, minor: int) -> str:
    return f"+{amount(currency, minor)}" if minor > 0 else amount(currency, minor)


def number(value: float) -> str:
    """Four significant digits, or all of them before the point.

    >>> number(0.871249), number(-12345.6)
    ('0.8712', '−12,346')
    """
    written = f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
    return written.replace("-", "−")


def signed_number(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


def percent(part: float, whole: float) -> str:
    """A share with one decimal; a dash where there is nothing to share.

    >>> percent(1, 8), percent(0, 0)
    ('12.5 %', '–')
    """
    return f"{100 * part / whole:.1f} %" if whole else "–"


def count(quantity: int, noun: str, plural: str | None = None) -> str:
    """
    >>> count(1, "access", "accesses"), count(2500, "round")
    ('1 access', '2,500 rounds')
    """
    return f"{quantity:,} {noun if quantity == 1 else plural or noun + 's'}"
