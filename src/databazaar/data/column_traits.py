"""What a column looks like, whatever it is used for: an identifier, numbers or dates written as text, one value."""

from __future__ import annotations

import re

import pandas as pd

from databazaar.data.columns import Column, kind_of, plain
from databazaar.data.date_text import days_in
from databazaar.data.number_text import numbers_in

SAMPLE = 1000
"""A look at so many different values decides."""
LEAST_FOR_IDENTIFIER = 20
"""Below so many rows, different values say nothing: names of people differ too."""
_IDENTIFIER_NAME = re.compile(r"(?:^|[^a-z])(?:id|uuid|guid|key|index|rowid|serial)$|^unnamed: \d+$")


def written(column: Column) -> list[str]:
    """The first different texts of a column of text, trimmed; none where it holds anything else."""
    values = plain(column.dropna())
    if kind_of(values) != "text":
        return []
    return [text for text in map(str.strip, map(str, values.unique()[:SAMPLE])) if text]


def holds_written_numbers(column: Column) -> bool:
    """Whether a column of text holds numbers, such as those with a currency sign, thousands or a decimal comma.

    >>> holds_written_numbers(pd.Series(["$12.30", "1,234.50"])), holds_written_numbers(pd.Series(["web", "shop"]))
    (True, False)
    """
    texts = written(column)
    some = any(map(str.isdigit, "".join(texts)))
    return some and bool(numbers_in(texts).unreadable.mean() < 0.1)


def holds_written_dates(column: Column) -> bool:
    """Whether a column of text holds dates or times.

    >>> holds_written_dates(pd.Series(["2024-05-01", "2024-06-01 12:00"])), holds_written_dates(pd.Series(["2024"]))
    (True, False)
    """
    texts = written(column)
    return bool(texts) and bool(days_in(texts).unreadable.mean() < 0.1)


def distinct(column: Column) -> int:
    """How many different values there are; values that cannot be compared, such as lists, all differ.

    >>> distinct(pd.Series(["a", "b", "a", None])), distinct(pd.Series([[1], [1]]))
    (2, 2)
    """
    try:
        return int(column.nunique())
    except TypeError:
        return int(column.notna().sum())


def is_identifier(column: Column) -> bool:
    """Whether every row has a value of its own that says nothing: unique text, or numbers that are called an id.

    >>> is_identifier(pd.Series([f"c-{i}" for i in range(50)])), is_identifier(pd.Series(range(50), name="amount"))
    (True, False)
    """
    values = plain(column.dropna())
    if len(values) < LEAST_FOR_IDENTIFIER or distinct(values) < len(values):
        return False
    if kind_of(values) == "text":
        return not (holds_written_numbers(values) or holds_written_dates(values))
    return pd.api.types.is_integer_dtype(values.dtype) and bool(_IDENTIFIER_NAME.search(str(column.name).lower()))


def is_constant(column: Column) -> bool:
    """
    >>> is_constant(pd.Series([3, 3, 3])), is_constant(pd.Series([3, None, 3]))
    (True, False)
    """
    return len(column) > 1 and distinct(column) == 1 and not column.hasnans
