"""Columns of several tables made comparable: numbers and dates as float64, categories as names, whoever wrote them."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, kind_of, plain
from databazaar.data.date_text import days_in, days_of
from databazaar.data.number_text import numbers_in
from databazaar.data.profile_record import Understood

Floats = npt.NDArray[np.float64]


def floats(column: Column, understood: Understood) -> Floats:
    """A number for each row, days for dates; NaN where there is none.

    >>> floats(pd.Series(["$1,200.50", None, "free"]), "number").tolist()
    [1200.5, nan, nan]
    """
    column = plain(column)
    if kind_of(column) == "text":
        codes, texts = pd.factorize(column)
        trimmed = [str(text).strip() for text in texts]
        read = days_in(trimmed) if understood == "date" else numbers_in(trimmed)
        values: Floats = np.append(read.values, np.nan)[codes]
    elif understood == "date":
        values = days_of(column) if hasattr(column, "dt") or column.dtype == object else np.full(len(column), np.nan)
    else:
        values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def names(column: Column) -> Column:
    """The category of each row, None where there is none; 3, 3.0 and "3" are one category.

    >>> names(pd.Series([3.0, None, 0.5])).tolist()
    ['3', None, '0.5']
    """
    codes, values = pd.factorize(plain(column))
    texts = [_name(value) for value in values]
    return pd.Series(np.array([*texts, None], dtype=object)[codes], index=column.index, dtype=object)


def _name(value: object) -> str | None:
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value).strip() or None


def fingerprints(frame: pd.DataFrame, understood: dict[str, Understood]) -> npt.NDArray[np.uint64]:
    """One number for each row, the same for rows that say the same in all columns of `understood`."""
    comparable = {
        name: names(frame[name]).to_numpy() if kind in ("category", "hashed") else floats(frame[name], kind)
        for name, kind in understood.items()
    }
    hashed = pd.util.hash_pandas_object(pd.DataFrame(comparable), index=False)
    return np.asarray(hashed, dtype=np.uint64)


def spelling(name: str) -> str:
    """What stays of a name whatever its case, spaces and signs.

    >>> spelling("New-York ") == spelling("new york")
    True
    """
    return re.sub(r"[\W_]+", "", name.casefold())
