"""One column of a table: as numbers, days or texts, or one sentence about the row in the way; and its traits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types

from databazaar.data.text_values import days_in, days_of, numbers_in
from databazaar.errors import BazaarError

Kind = Literal["number", "text", "date", "other"]
Column: TypeAlias = "pd.Series[Any]"
Floats: TypeAlias = npt.NDArray[np.float64]
_OBJECT_KINDS: dict[str, Kind] = {
    "string": "text",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty"), "number"),
    **dict.fromkeys(("date", "datetime", "datetime64"), "date"),
}
SAMPLE = 1000
"""A look at so many different values decides."""
LEAST_FOR_IDENTIFIER = 20
"""Below so many rows, different values say nothing: names of people differ too."""
_IDENTIFIER_NAME = re.compile(r"(?:^|[^a-z])(?:id|uuid|guid|key|index|rowid|serial)$|^unnamed: \d+$")


class Texts(NamedTuple):
    """A column by its distinct texts: a row holds `texts[code]`, and nothing where its code is -1."""

    codes: npt.NDArray[np.int64]
    texts: list[str]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The rows of each text."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def spread(self, values: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
        """One value per row from one value per text."""
        return np.append(values, missing)[self.codes]


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names as a sentence shows them.

    >>> listed(["amount", "hour", "age"], most=2)
    "'amount', 'hour' and 1 more"
    """
    shown = [repr(name) for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def suggestion(name: str, known: Sequence[str]) -> str:
    """The nearest known name, or all of them.

    >>> suggestion("amuont", ["amount", "hour"])
    "did you mean 'amount'?"
    >>> suggestion("zzz", ["amount", "hour"])
    "the columns are 'amount', 'hour'"
    """
    folded = {known_name.casefold(): known_name for known_name in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean {folded[close[0]]!r}?" if close else f"the columns are {listed(known)}"


def kind_of(column: Column) -> Kind:
    """Booleans and durations count as numbers; lists and mixtures are neither numbers, dates nor text.

    >>> kind_of(pd.Series([True, False])), kind_of(pd.Series(["a", "b"]))
    ('number', 'text')
    """
    dtype = column.dtype
    if types.is_complex_dtype(dtype):
        return "other"
    if types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_object_dtype(dtype):
        return _OBJECT_KINDS.get(types.infer_dtype(column, skipna=True), "other")
    return "text" if types.is_string_dtype(dtype) else "other"


def plain(column: Column) -> Column:
    """Pandas categories as the values that they stand for, and numbers among texts as text."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object if column.hasnans else column.dtype.categories.dtype)
    if types.is_object_dtype(column.dtype) and types.infer_dtype(column, skipna=True) in ("mixed", "mixed-integer"):
        given = column.dropna()
        if all(isinstance(value, str | int | float) for value in given):
            return given.map(written).reindex(column.index)
    return column


def as_numbers(column: Column, where: str, expected: str) -> Floats:
    """The column as float64, NaN where a value is missing. `expected` says who wants numbers, such as "the hold-out has
    numbers"."""
    column = plain(column)
    kind = kind_of(column)
    if kind == "text":
        texts = as_texts(column, where)
        read = numbers_in(texts.texts)
        refuse_unreadable(column, texts, read.unreadable, where, expected, "write a number there")
        numbers = texts.spread(read.values, np.nan)
    elif kind == "number":
        numbers = _floats(column)
    else:
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values and {expected}: "
            "write it as numbers or leave the column out"
        )
    infinite = np.isinf(numbers)
    if infinite.any():
        raise BazaarError(
            f"{where}: column {column.name!r} is not a finite number in data row {int(infinite.argmax()) + 1}: "
            "correct it or drop the row"
        )
    return numbers


def as_days(column: Column, where: str, day_first: bool) -> Floats:
    """The column as days since 1970, NaN where a value is missing; time zones are left out, clocks are as written.
    `days_in` says what `day_first` decides."""
    column = plain(column)
    kind = kind_of(column)
    expected = "the hold-out has dates"
    if kind == "date":
        return days_of(column)
    if kind == "text":
        texts = as_texts(column, where)
        read = days_in(texts.texts, day_first)
        refuse_unreadable(column, texts, read.unreadable, where, expected, "write a date there")
        return texts.spread(read.values, np.nan)
    if not column.isna().all():
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values and {expected}: "
            "write it as dates such as 2024-12-31 or leave the column out"
        )
    return np.full(len(column), np.nan)


def as_texts(column: Column, where: str) -> Texts:
    """The distinct values as trimmed texts. A number has one text whatever its type: 3, 3.0 and "3" are one; and so
    has a letter with an accent, in whichever of Unicode's two ways it is written.

    >>> as_texts(pd.Series([3.0, 0.5, None, 3.0], name="grade"), "holdout.csv")
    Texts(codes=array([ 0,  1, -1,  0]), texts=['3', '0.5'])
    """
    column = plain(column)
    kind = kind_of(column)
    if kind == "other":
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values, neither numbers nor text nor dates: "
            "convert it or leave the column out of `features`"
        )
    if kind == "number":
        codes, numbers = pd.factorize(as_numbers(column, where, "numbers were expected"))
        return Texts(codes.astype(np.int64), [written(value) for value in numbers.tolist()])
    codes, values = pd.factorize(column)
    texts = [normalize("NFC", str(value).strip()) for value in values.tolist()]
    places = {text: place for place, text in enumerate(dict.fromkeys(filter(None, texts)))}  # trimming makes some equal
    moved = np.array([*(places.get(text, -1) for text in texts), -1], dtype=np.int64)
    return Texts(moved[codes], list(places))


def refuse_unreadable(
    column: Column, texts: Texts, unreadable: npt.NDArray[np.bool_], where: str, expected: str, remedy: str
) -> None:
    """Raise for the first row whose text does not read as what was expected."""
    bad = texts.spread(unreadable, False)
    if bad.any():
        row = int(bad.argmax())
        raise BazaarError(
            f"{where}: column {column.name!r} holds the text {texts.texts[texts.codes[row]][:40]!r} in data row "
            f"{row + 1} and {expected}: {remedy} or drop the row"
        )


def written(value: str | float) -> str:
    """The one text of a number; a text is its own."""
    if isinstance(value, str):
        return value
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _floats(column: Column) -> Floats:
    if types.is_timedelta64_dtype(column.dtype):
        return column.dt.total_seconds().to_numpy(dtype=np.float64) / 86_400
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError:
        return np.array([_float_or_infinity(value) for value in column], dtype=np.float64)


def _float_or_infinity(value: Any) -> float:
    try:
        return float("nan") if pd.isna(value) else float(value)
    except OverflowError:
        return float("inf")


def sample_texts(column: Column) -> list[str]:
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
    texts = sample_texts(column)
    some = any(map(str.isdigit, "".join(texts)))
    return some and bool(numbers_in(texts).unreadable.mean() < 0.1)


def holds_written_dates(column: Column) -> bool:
    """Whether a column of text holds dates or times.

    >>> holds_written_dates(pd.Series(["2024-05-01", "2024-06-01 12:00"])), holds_written_dates(pd.Series(["2024"]))
    (True, False)
    """
    texts = sample_texts(column)
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
