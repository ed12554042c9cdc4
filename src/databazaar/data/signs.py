"""What a column looks like, whatever it is used for: an identifier, numbers or dates written as text, one value."""

from __future__ import annotations

import re

import pandas as pd
from pandas.api import types

from databazaar.data.columns import Column

SAMPLE = 1000
"""A look at so many values decides."""
LEAST_FOR_IDENTIFIER = 20
"""Below so many rows, different values say nothing: names of people differ too."""
_IDENTIFIER_NAME = re.compile(r"(?:^|[^a-z])(?:id|ids|uuid|guid|key|index|rowid|serial)$|^unnamed: \d+$|^index$")
_WRITTEN_NUMBER = re.compile(r"[-+(]?\s*(?:[$€£¥]|[A-Z]{3}\s)?\s*[-+]?\d[\d.,'’\s]*\s*(?:%|[$€£¥]|\s[A-Z]{3})?\)?")
_WRITTEN_DATE = re.compile(r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?:[T ].*)?")


def written(column: Column) -> pd.Series[str]:
    """The first texts of a column of text, trimmed; none where it holds anything else."""
    values = column.dropna()
    if not is_text(values):
        return pd.Series([], dtype=str)
    return values.head(SAMPLE).astype(str).str.strip()


def is_text(column: Column) -> bool:
    """
    >>> is_text(pd.Series(["a", "b"])), is_text(pd.Series([1, 2]))
    (True, False)
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return types.is_string_dtype(column.dtype.categories.dtype)
    if column.dtype == object:
        return types.infer_dtype(column, skipna=True) in ("string", "mixed")
    return types.is_string_dtype(column.dtype)


def holds_written_numbers(column: Column) -> bool:
    """Whether a column of text holds numbers with a currency sign, thousands or a decimal comma.

    >>> holds_written_numbers(pd.Series(["$12.30", "1,234.50"])), holds_written_numbers(pd.Series(["web", "shop"]))
    (True, False)
    """
    texts = written(column)
    return bool(len(texts)) and bool(texts.str.fullmatch(_WRITTEN_NUMBER).mean() > 0.9) and not holds_dates(column)


def holds_dates(column: Column) -> bool:
    """Whether a column holds dates, as a type of its own or as text.

    >>> holds_dates(pd.Series(["2024-05-01", "2024-06-01 12:00"])), holds_dates(pd.Series(["2024"]))
    (True, False)
    """
    if types.is_datetime64_any_dtype(column.dtype):
        return True
    texts = written(column)
    return bool(len(texts)) and bool(texts.str.fullmatch(_WRITTEN_DATE).mean() > 0.9)


def is_identifier(column: Column) -> bool:
    """Whether every row has a value of its own that says nothing: unique text, or numbers that are called an id.

    >>> is_identifier(pd.Series([f"c-{i}" for i in range(50)])), is_identifier(pd.Series(range(50), name="amount"))
    (True, False)
    """
    values = column.dropna()
    if len(values) < LEAST_FOR_IDENTIFIER or values.nunique() < len(values):
        return False
    if is_text(values):
        return not (holds_written_numbers(values) or holds_dates(values))
    return types.is_integer_dtype(values.dtype) and bool(_IDENTIFIER_NAME.search(str(column.name).lower()))


def is_constant(column: Column) -> bool:
    """
    >>> is_constant(pd.Series([3, 3, 3])), is_constant(pd.Series([3, None, 3]))
    (True, False)
    """
    return len(column) > 1 and column.nunique(dropna=False) <= 1
