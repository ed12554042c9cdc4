"""Columns of several tables made comparable: numbers and dates as float64, categories as names, whoever wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, Floats, as_numbers, as_texts, kind_of, plain
from databazaar.data.date_text import days_in, days_of
from databazaar.data.number_text import numbers_in
from databazaar.data.profile_record import Understood
from databazaar.errors import BazaarError

Names: TypeAlias = npt.NDArray[Any]
"""The category of each row, None where there is none."""


class Columns(NamedTuple):
    """The columns of one table by name."""

    floats: dict[str, Floats]
    names: dict[str, Names]


def comparable(frame: pd.DataFrame, kinds: Mapping[str, Understood]) -> Columns:
    """The columns of `kinds` that the table has."""
    there = {name: kind for name, kind in kinds.items() if name in frame.columns}
    return Columns(
        {name: floats(frame[name], kind) for name, kind in there.items() if kind in ("number", "date")},
        {name: names(frame[name]) for name, kind in there.items() if kind in ("category", "hashed")},
    )


def floats(column: Column, understood: Understood) -> Floats:
    """A number for each row, days for dates; NaN where there is none.

    >>> floats(pd.Series(["$1,200.50", None, "free"]), "number").tolist()
    [1200.5, nan, nan]
    """
    column = plain(column)
    kind = kind_of(column)
    if kind == "text":
        found = as_texts(column, "")
        read = days_in(found.texts) if understood == "date" else numbers_in(found.texts)
        return found.spread(np.where(np.isfinite(read.values), read.values, np.nan), np.nan)
    if kind == "date" and understood == "date":
        return days_of(column)
    try:
        return as_numbers(column.replace([np.inf, -np.inf], np.nan), "", "")
    except BazaarError:
        return np.full(len(column), np.nan)


def names(column: Column) -> Names:
    """The category of each row; 3, 3.0 and "3" are one.

    >>> names(pd.Series([3.0, None, 0.5])).tolist()
    ['3', None, '0.5']
    """
    try:
        found = as_texts(plain(column).replace([np.inf, -np.inf], np.nan), "")
    except BazaarError:
        return np.full(len(column), None, dtype=object)
    return np.array([*found.texts, None], dtype=object)[found.codes]


def fingerprints(columns: Columns) -> npt.NDArray[np.uint64]:
    """One number for each row, the same for rows that say the same in all columns."""
    hashed = pd.util.hash_pandas_object(pd.DataFrame({**columns.floats, **columns.names}), index=False)
    return np.asarray(hashed, dtype=np.uint64)


def spelling(name: str) -> str:
    """What stays of a name whatever its case, spaces and hyphens. A number stays as it is, and so does a grade A-.

    >>> spelling("New-York "), spelling("new york"), spelling("1.5"), spelling("A-")
    ('newyork', 'newyork', '1.5', 'a-')
    """
    return re.sub(r"[\s_'’]+|(?<=[^\W\d])[-.](?=[^\W\d])|(?<=[^\W\d])\.$", "", name.casefold())
