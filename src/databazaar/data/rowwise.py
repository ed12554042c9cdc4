"""A table encoded row by row, and nothing refused: what a row becomes depends on that row and on the schema alone.

Differential privacy counts what one row can change. So no row may decide how another is read, as it does elsewhere,
where a column's other values say whether 03/04 is a day in April or whether 1,234 is a thousand; and none may end in a
refusal. A number that cannot be read is missing, a category that is not known is none, and a column that is not there
is missing in every row. How the file itself is written (separator, decimal sign) is found out from the whole file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable
from contextlib import suppress
from numbers import Number
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, Floats, written
from databazaar.data.encoders import (
    CategoricalColumn,
    DateColumn,
    Encoder,
    ImageColumn,
    NumericColumn,
    TextColumn,
    mark,
    standardised,
)
from databazaar.data.schema import Array, Schema
from databazaar.data.target import place_of, spellings_of
from databazaar.data.text_values import days_in, days_of, look_like_codes, numbers_in
from databazaar.data.words import bucket_of
from databazaar.errors import BazaarError

UNKNOWN = -1
"""The class of a row whose label is none of the schema's, or missing; in a regression it is NaN."""


def encode_rowwise(schema: Schema, frame: pd.DataFrame) -> tuple[npt.NDArray[np.float32], Array]:
    """x and y of every row, however little it fits.

    >>> own = pd.DataFrame({"amount": [1.0, 3.0], "channel": ["web", "shop"], "fraud": ["no", "yes"]})
    >>> schema = Schema.fit(own, target="fraud", task="classification")
    >>> odd = pd.DataFrame({"amount": ["3", "a lot"], "fraud": ["YES", "perhaps"]})
    >>> x, y = encode_rowwise(schema, odd)
    >>> x.tolist(), y.tolist()
    ([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [1, -1])
    """
    x = np.zeros((len(frame), schema.width), dtype=np.float32)
    place = 0
    for encoder in schema.encoders:
        _encode(encoder, _column(frame, encoder.name), x[:, place : place + encoder.width])
        place += encoder.width
    target = _column(frame, schema.target)
    if schema.task == "regression":
        return x, standardised(_read(target, _number, np.nan), schema.target_mean, schema.target_scale)
    known = spellings_of(schema.classes)
    for place, name in enumerate(schema.class_names):
        known.setdefault(spelling(name), place)
    return x, _read(target, lambda value: place_of(spelling(value), known), UNKNOWN).astype(np.int64)


def spelling(value: Any) -> str:
    """One text for a value, whatever type its column got from the other rows: 3, 3.0, "3" and "3.0" are one.

    >>> spelling(3.0), spelling("+3.0"), spelling("003"), spelling(True), spelling(" TRUE "), spelling("web")
    ('3', '3', '003', '1', '1', 'web')
    """
    text = normalize("NFC", str(value).strip())
    if text.casefold() in ("true", "false"):
        return str(int(text.casefold() == "true"))
    try:
        number = float(text)
    except ValueError:
        return text
    return text if look_like_codes([text]) or not np.isfinite(number) or "_" in text else written(number)


def _encode(encoder: Encoder, column: Column, out: npt.NDArray[np.float32]) -> None:
    if isinstance(encoder, NumericColumn):
        encoder.fill(_read(column, _number, np.nan), out)
    elif isinstance(encoder, DateColumn):
        encoder.fill(_read(column, lambda value: _day(value, encoder.day_first), np.nan), out)
    elif isinstance(encoder, CategoricalColumn):
        places, others = dict[str, int](), encoder.place_of_others
        for place, category in enumerate(encoder.categories):
            places.setdefault(spelling(category), place)
        mark(out, _read(column, lambda value: places.get(spelling(value), others), encoder.place_of_missing))
    elif isinstance(encoder, ImageColumn):
        for value, row in zip(column, out, strict=True):
            with suppress(BazaarError):
                encoder.fill(value if isinstance(value, bytes) else b"", row)
    elif isinstance(encoder, TextColumn):
        encoder.fill(np.array([_text(value) for value in column], dtype=object), out)
    else:
        mark(out, _read(column, lambda value: bucket_of(spelling(value), encoder.buckets), encoder.place_of_missing))


def _text(value: Any) -> str | None:
    """Any value as text; None where it is missing."""
    if isinstance(value, str):
        return normalize("NFC", value.strip()) or None
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else spelling(value)


def _column(frame: pd.DataFrame, name: str) -> Column:
    return frame[name] if name in frame.columns else pd.Series([np.nan] * len(frame), name=name)


def _read(column: Column, read: Callable[[Any], float], missing: float) -> Floats:
    """Every row's value as `read` gives it, once for equal values; what cannot be told apart or held is missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_object_dtype(column.dtype):
        column = column.map(lambda value: value if isinstance(value, Hashable) else None).astype(object)
    codes, values = pd.factorize(column)
    found = (missing if isinstance(value, str) and not value.strip() else read(value) for value in values.tolist())
    return np.array([*found, missing], dtype=np.float64)[codes]


def _number(value: Any) -> float:
    if isinstance(value, pd.Timedelta):
        return value.total_seconds() / 86_400
    if isinstance(value, str):
        return float(numbers_in([value.strip()]).values[0])
    if not isinstance(value, Number) or isinstance(value, complex):
        return np.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (OverflowError, ValueError):
        return np.nan
    return number if np.isfinite(number) else np.nan


def _day(value: Any, day_first: bool) -> float:
    if isinstance(value, str):
        return float(days_in([value.strip()], day_first).values[0])
    return float(days_of(pd.Series([value], dtype=object))[0]) if isinstance(value, dt.date) else np.nan
