"""Numbers as people write them: $12.30, 1,234.50, 1.234,50 €, 12 %, 1 234, (5.00), yes and no."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MISSING_WORDS = frozenset({"", "-", "--", "–", "—", "?", ".", "na", "n/a", "n.a.", "#n/a", "nan", "none", "null"}) | {
    *("nil", "k.a.", "unknown", "missing", "(missing)", "not available")
}
"""What stands in a column of numbers or dates for a missing value; upper or lower case."""
TRUE_WORDS = frozenset(["true", "yes", "y", "t", "on", "ja", "oui", "si", "sí", "sì", "1"])
FALSE_WORDS = frozenset(["false", "no", "n", "f", "off", "nein", "non", "0"])

_CURRENCY = (
    r"(?:(?:US|CA|AU|NZ|HK|R)?\$|[€£¥₹₽₩₺₪฿]|kr\.?|zł|Fr\.|"
    r"USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|TRY|ZAR|SGD|HKD|KRW)"
)
_GAP = " \u00a0\u2009\u202f"
_NUMBER = re.compile(
    rf"(?P<open>\()?(?P<sign>[+\-\u2212])?[{_GAP}]*{_CURRENCY}?[{_GAP}]*(?P<inner>[+\-\u2212])?"
    rf"(?P<whole>\d{{1,3}}(?:(?P<group>[{_GAP}.,'\u2019])\d{{3}})(?:(?P=group)\d{{3}})*|\d+|(?=[.,]\d))"
    rf"(?:(?P<point>[.,])(?P<fraction>\d*))?(?P<power>[eE][+-]?\d+)?"
    rf"[{_GAP}]*(?:{_CURRENCY}|%|‰)?(?P<trailing>-)?(?P<close>\))?"
)
_CODE = re.compile(r"0\d+")


class Read(NamedTuple):
    """One value per text: NaN where the text stands for nothing, or where it is unreadable. `day_first` is how dates
    were read."""

    values: npt.NDArray[np.float64]
    unreadable: npt.NDArray[np.bool_]
    day_first: bool = False


def numbers_in(texts: Sequence[str]) -> Read:
    """The numbers that distinct trimmed texts of one column stand for.

    Whether a comma is a decimal point is decided for the column: by texts such as 1.234,50 or 12,5 that leave
    no doubt. Where all are in doubt, as 1,234 is, a point is a decimal point and a comma groups thousands.

    >>> numbers_in(["$12.30", "1,234", "n/a"]).values.tolist()
    [12.3, 1234.0, nan]
    >>> numbers_in(["1.234", "12,5 €", "-3"]).values.tolist()
    [1234.0, 12.5, -3.0]
    """
    folded = [text.casefold() for text in texts]
    missing = np.array([text in MISSING_WORDS for text in folded], dtype=np.bool_)
    present = [text for text, gone in zip(folded, missing, strict=True) if not gone]
    if present and all(text in TRUE_WORDS or text in FALSE_WORDS for text in present):
        return Read(np.where(missing, np.nan, [float(text in TRUE_WORDS) for text in folded]), np.zeros_like(missing))
    values = [_float(text) for text in texts]
    if any(value is None and not gone for value, gone in zip(values, missing, strict=True)):
        values = _as_written(texts)
    unreadable = np.array([value is None for value in values], dtype=np.bool_) & ~missing
    filled = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return Read(np.where(missing, np.nan, filled), unreadable)


def look_like_codes(texts: Sequence[str]) -> bool:
    """Whether zeros in front say that these are names and not amounts, as in 00123.

    >>> look_like_codes(["00123", "4711"]), look_like_codes(["0.5", "0"])
    (True, False)
    """
    return any(_CODE.fullmatch(text) for text in texts)


def _float(text: str) -> float | None:
    """As a programming language writes finite numbers."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _as_written(texts: Sequence[str]) -> list[float | None]:
    found = [_NUMBER.fullmatch(text) for text in texts]
    votes = [_decimal(match) for match in found if match]
    decimal = "," if votes.count(",") > votes.count(".") else "."
    return [_value(match, decimal) if match else None for match in found]


def _decimal(match: re.Match[str]) -> str | None:
    """The decimal sign that this text shows beyond doubt."""
    group, point = match["group"], match["point"]
    if point is not None:
        return point
    if group is None or group not in ".,":
        return None
    if match["whole"].startswith("0"):
        return group
    return None if match["whole"].count(group) == 1 else {".": ",", ",": "."}[group]


def _value(match: re.Match[str], decimal: str) -> float | None:
    group, point, whole = match["group"], match["point"], match["whole"]
    if (match["open"] is None) != (match["close"] is None) or point not in (None, decimal):
        return None
    if group == decimal:
        if whole.count(group) > 1 or point is not None:
            return None
        whole = whole.replace(group, ".")
    elif group is not None:
        whole = whole.replace(group, "")
    signs = [match["open"], match["trailing"], *(s for s in (match["sign"], match["inner"]) if s != "+")]
    size = float(f"{whole or 0}{'.' + (match['fraction'] or '0') if point else ''}{match['power'] or ''}")
    if not math.isfinite(size):
        return None
    return -size if sum(sign is not None for sign in signs) == 1 else size
