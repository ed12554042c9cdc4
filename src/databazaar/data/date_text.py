"""Dates and times as people write them, as days since the first of January 1970."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.number_text import MISSING_WORDS, Read

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?:{'|'.join(_MONTHS)})[a-z]*"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?\s?(?P<half>am|pm)?"
_DATE = (
    r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
    r"|(?P<first>\d{1,2})(?P<sign>[-/.])(?P<second_part>\d{1,2})(?P=sign)(?P<late_year>\d{4})"
    r"|(?P<short_first>\d{2})(?P<short_sign>[-/.])(?P<short_second>\d{2})(?P=short_sign)(?P<short_year>\d{2})"
    rf"|(?P<named_day>\d{{1,2}})[. -]{{1,2}}(?P<named_month>{_MONTH})[. ,-]{{1,2}}(?P<named_year>\d{{4}})"
    rf"|(?P<word_month>{_MONTH})\.? (?P<word_day>\d{{1,2}}),? (?P<word_year>\d{{4}})"
)
_WHEN = re.compile(
    rf"(?:{_DATE})(?:(?:t|,?\s+){_CLOCK}\s?(?:z|utc|gmt|[+-]\d{{2}}(?::?\d{{2}})?)?)?",
    re.IGNORECASE,
)
_TIME = re.compile(_CLOCK, re.IGNORECASE)
_EPOCH = dt.date(1970, 1, 1).toordinal()


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
        return np.array([np.nan if pd.isna(value) else _ordinal(value) for value in column], dtype=np.float64)
    clock = column.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    days = clock.astype(np.int64) / 86_400e6
    return np.where(np.isnat(clock), np.nan, days)


def _ordinal(value: dt.date) -> float:
    if not isinstance(value, dt.datetime):
        return float(value.toordinal() - _EPOCH)
    clock = value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    return value.toordinal() - _EPOCH + clock / 86_400


def _order(found: Sequence[re.Match[str] | None], day_first: bool | None) -> bool:
    """Whether the day comes before the month, by the most dates that leave no doubt."""
    votes = {True: 0, False: 0}
    slashes = False
    for match in found:
        if match is None or match.re is _TIME:
            continue
        first, second = match["first"] or match["short_first"], match["second_part"] or match["short_second"]
        if first is None:
            continue
        slashes = slashes or (match["sign"] or match["short_sign"]) == "/"
        if (int(first) > 12) != (int(second) > 12):
            votes[int(first) > 12] += 1
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
    first, second = int(match["first"] or match["short_first"]), int(match["second_part"] or match["short_second"])
    year = int(match["late_year"] or match["short_year"])
    if match["short_year"]:
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
