"""One column of a table as numbers or as text, or one sentence that says which row is in the way."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types

from databazaar.errors import BazaarError

Kind = Literal["number", "text", "other"]
Column: TypeAlias = "pd.Series[Any]"
_OBJECT_KINDS: dict[str, Kind] = {
    "string": "text",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "boolean": "number",
}


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
    """Booleans count as numbers; dates, lists and mixtures are neither numbers nor text.

    >>> kind_of(pd.Series([True, False])), kind_of(pd.Series(["a", "b"]))
    ('number', 'text')
    """
    if types.is_complex_dtype(column.dtype):
        return "other"
    if types.is_bool_dtype(column.dtype) or types.is_numeric_dtype(column.dtype):
        return "number"
    if column.dtype == object:
        return _OBJECT_KINDS.get(types.infer_dtype(column, skipna=True), "other")
    return "text" if types.is_string_dtype(column.dtype) else "other"


def plain(column: Column) -> Column:
    """A column of pandas categories as the values that it stands for; any other column as it is."""
    if isinstance(column.dtype, pd.CategoricalDtype) and not column.hasnans:
        return column.astype(column.dtype.categories.dtype)
    return column


def refuse_missing(column: Column, where: str) -> None:
    missing = column.isna().to_numpy()
    if missing.any():
        raise BazaarError(
            f"{where}: column {column.name!r} has no value in {_row(missing)} "
            "(it is empty, NaN, NA or null): fill it in or drop the row"
        )


def as_numbers(column: Column, where: str, expected: str) -> npt.NDArray[np.float64]:
    """The column as finite float64; `expected` says who wants numbers, such as "the hold-out has numbers"."""
    refuse_missing(column, where)
    column = plain(column)
    kind = kind_of(column)
    if kind == "text":
        refuse_text(column, where, expected)
        column = pd.to_numeric(column)
    elif kind == "other":
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values and {expected}: "
            "write it as numbers or leave the column out"
        )
    try:
        numbers = column.to_numpy(dtype=np.float64)
    except OverflowError:
        numbers = np.array([_float_or_infinity(value) for value in column], dtype=np.float64)
    finite = np.isfinite(numbers)
    if not finite.all():
        raise BazaarError(
            f"{where}: column {column.name!r} is not a finite number in {_row(~finite)}: correct it or drop the row"
        )
    return numbers


def refuse_text(column: Column, where: str, expected: str) -> None:
    """Raise for the first value that does not read as a number."""
    unreadable = pd.to_numeric(column, errors="coerce").isna().to_numpy()
    if unreadable.any():
        value = str(column.iloc[int(unreadable.argmax())])
        raise BazaarError(
            f"{where}: column {column.name!r} holds the text {value[:40]!r} in {_row(unreadable)} "
            f"and {expected}: write a number there or drop the row"
        )


def mostly_numbers(column: Column) -> bool:
    """Whether most, but not all, of a text column reads as numbers: a typing error, not categories."""
    unreadable = pd.to_numeric(column, errors="coerce").isna().to_numpy()
    return bool(unreadable.any() and unreadable.mean() < 0.5)


def as_text(column: Column, where: str) -> list[str]:
    """Category names. A number has one name whatever its type, so that 3, 3.0 and "3" are one category.

    >>> as_text(pd.Series([3.0, 0.5], name="grade"), "holdout.csv")
    ['3', '0.5']
    """
    refuse_missing(column, where)
    column = plain(column)
    kind = kind_of(column)
    if kind == "other":
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values, neither numbers nor text: "
            "convert it or leave the column out of `features`"
        )
    if kind == "text":
        return [str(value) for value in column]
    values = as_numbers(column, where, "numbers were expected").tolist()
    return [str(int(value)) if value.is_integer() else repr(value) for value in values]


def _float_or_infinity(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _row(bad: npt.NDArray[np.bool_]) -> str:
    return f"data row {int(bad.argmax()) + 1}"
