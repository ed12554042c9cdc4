"""Numbers and dates as people write them: $12.30, 1.234,50 €, 12 %, (5.00), yes and no; 03.04.2024, 12:30 pm."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

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
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?:{'|'.join(_MONTHS)})[a-z]*"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s?(?P<half>am|pm)?"
_DATE = (
    r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
    r"|(?P<first>\d{1,2})(?P<sign>[-/.])(?P<second_part>\d{1,2})(?P=sign)"
    r"(?P<late_year>\d{4}|(?<=\d\d[-/.]\d\d[-/.])\d{2})"
    rf"|(?P<named_day>\d{{1,2}})[. -]{{1,2}}(?P<named_month>{_MONTH})[. ,-]{{1,2}}(?P<named_year>\d{{4}})"
    rf"|(?P<word_month>{_MONTH})\.? (?P<word_day>\d{{1,2}}),? (?P<word_year>\d{{4}})"
)
_WHEN = re.compile(rf"(?:{_DATE})(?:(?:t|,?\s+){_CLOCK}\s?(?:z|utc|gmt|[+-]\d{{2}}(?::?\d{{2}})?)?)?", re.IGNORECASE)
_TIME = re.compile(_CLOCK, re.IGNORECASE)
_EPOCH = dt.date(1970, 1, 1).toordinal()


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
        found = [_NUMBER.fullmatch(text) for text in texts]
        votes = [_decimal(match) for match in found if match]
        decimal = "," if votes.count(",") > votes.count(".") else "."
        values = [_value(match, decimal) if match else None for match in found]
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


def days_in(texts: Sequence[str], day_first: bool | None = None) -> Read:
    """The days that distinct trimmed texts of one column stand for; a time alone is a part of day 0.

    Where day and month could be either, a date of the same column with a number above 12 decides; then
    `day_first`; and without it, 03/04/2024 is the fourth of March and 03.04.2024 the third of April.

    >>> days_in(["01.02.1970 12:00", ""]).values.tolist()
    [31.5, nan]
    >>> days_in(["1/2/1970", "1/31/1970"]).values.tolist()
    [1.0, 30.0]
    """
    found = [_WHEN.fullmatch(text) or _TIME.fullmatch(text) for text in texts]
    order = _order(found, day_first)
    values = [_days(match, order) if match else None for match in found]
    missing = np.array([text.casefold() in MISSING_WORDS for text in texts], dtype=np.bool_)
    filled = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return Read(filled, np.isnan(filled) & ~missing, order)


def days_of(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """The days of a column of dates that pandas or Python holds, by the clock of their own time zone."""
    if pd.api.types.is_object_dtype(column.dtype):
        here = (value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value for value in column)
        clock = np.array([None if pd.isna(value) else value for value in here], dtype="datetime64[us]")
    else:
        clock = column.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    days = clock.astype(np.int64) / 86_400e6
    return np.where(np.isnat(clock), np.nan, days)


def _order(found: Sequence[re.Match[str] | None], day_first: bool | None) -> bool:
    """Whether the day comes before the month, by the most dates that leave no doubt."""
    votes = {True: 0, False: 0}
    slashes = False
    for match in found:
        if match is None or match.re is _TIME:
            continue
        if match["first"] is None:
            continue
        slashes = slashes or match["sign"] == "/"
        first, second = int(match["first"]), int(match["second_part"])
        if (first > 12) != (second > 12):
            votes[first > 12] += 1
    if votes[True] != votes[False]:
        return votes[True] > votes[False]
    return not slashes if day_first is None else day_first


def _days(match: re.Match[str], day_first: bool) -> float | None:
    clock = _seconds(match)
    if clock is None:
        return None
    if match.re is _TIME:
        return clock / 86_400
    try:
        return dt.date(*_parts(match, day_first)).toordinal() - _EPOCH + clock / 86_400
    except ValueError:
        return None


def _parts(match: re.Match[str], day_first: bool) -> tuple[int, int, int]:
    if match["year"]:
        return int(match["year"]), int(match["month"]), int(match["day"])
    if match["named_year"] or match["word_year"]:
        name = (match["named_month"] or match["word_month"])[:3].casefold()
        year, day = match["named_year"] or match["word_year"], match["named_day"] or match["word_day"]
        return int(year), _MONTHS.index(name) + 1, int(day)
    first, second, year = int(match["first"]), int(match["second_part"]), int(match["late_year"])
    if len(match["late_year"]) == 2:
        year += 2000 if year < 69 else 1900
    return (year, second, first) if day_first else (year, first, second)


def _seconds(match: re.Match[str]) -> float | None:
    if match["hour"] is None:
        return 0.0
    hour, minute = int(match["hour"]), int(match["minute"])
    second = float((match["second"] or "0").replace(",", "."))
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"].casefold() == "pm" else 0)
    return hour * 3600 + minute * 60 + second if hour < 24 and minute < 60 and second < 61 else None
