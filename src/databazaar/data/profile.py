"""Tables measured against the consumer's hold-out: what differs, what is empty, what was copied."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, Floats, as_numbers, as_texts, kind_of, plain
from databazaar.data.images import holds_bytes
from databazaar.data.profile_record import TableProfile, Understood
from databazaar.data.schema_message import TaskKind
from databazaar.data.target import Classes, classes_of, places_of
from databazaar.data.text_values import days_in, days_of, numbers_in
from databazaar.errors import BazaarError

MOST_STRANGE = 50
FARTHEST = 1e6
NAMES = ("category", "hashed", "text", "image")
"""Kinds of columns whose rows say the same or not."""
Names: TypeAlias = npt.NDArray[Any]
"""The category of each row, None where there is none."""


@dataclass(frozen=True)
class Numbers:
    """One column of numbers or dates: how many there are and lie outside the hold-out's range, and the shift."""

    known: int
    outside: int = 0
    shift: float = 0.0


@dataclass(frozen=True)
class Categories:
    """One column of categories: how many cells there are and the hold-out does not know, and such names by number."""

    known: int
    unseen: int
    strange: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """All that the sentences about one table are made from."""

    profile: TableProfile
    numbers: dict[str, Numbers]
    categories: dict[str, Categories]
    empty: dict[str, float]
    strange_labels: tuple[str, ...]
    extra: tuple[str, ...]


class Baseline:
    """The consumer's hold-out. `understood` says of each feature how it is read."""

    def __init__(self, frame: pd.DataFrame, target: str, task: TaskKind, understood: dict[str, Understood]) -> None:
        self.frame, self.target = frame, target
        self._kinds: dict[str, Understood] = {**understood, target: "number" if task == "regression" else "category"}
        self._own = comparable(frame, self._kinds)
        self.known = {
            name: {text for text in texts if text is not None}
            for name, texts in self._own.names.items()
            if self._kinds[name] in ("category", "hashed")
        }
        self._rows = fingerprints(self._own)
        self._classes: Classes = ()
        if task == "classification":
            with suppress(BazaarError):
                self._classes = classes_of(frame[target].dropna(), "")

    def measure(self, frame: pd.DataFrame, own: bool = False) -> Measured:
        """One table against the hold-out, in the columns that it has; `own` is the hold-out itself."""
        columns = self._own if own else comparable(frame, self._kinds)
        rows = self._rows if own else fingerprints(columns)
        complete = len(columns.floats) + len(columns.names) == len(self._kinds)
        numbers = {name: _numbers(values, self._own.floats[name]) for name, values in columns.floats.items()}
        categories = {
            name: _categories(texts, self.known[name])
            for name, texts in columns.names.items()
            if name != self.target and self._kinds[name] == "category"
        }
        shifted = max(numbers, key=lambda name: numbers[name].shift, default="")
        balance = self._balance(frame)
        empty = {name: float(np.isnan(values).mean()) for name, values in columns.floats.items()}
        empty |= {name: float(pd.isna(texts).mean()) for name, texts in columns.names.items()}
        profile = TableProfile(
            rows=len(frame),
            missing=float(np.mean(list(empty.values()))) if empty else 0.0,
            unseen=_share(sum(c.unseen for c in categories.values()), sum(c.known for c in categories.values())),
            outside=_share(sum(n.outside for n in numbers.values()), sum(n.known for n in numbers.values())),
            shift=numbers[shifted].shift if shifted else 0.0,
            shifted=shifted if shifted and numbers[shifted].shift else "",
            copied=int(np.isin(self._rows, rows).sum()) if complete and not own else 0,
            repeated=len(rows) - len(np.unique(rows)),
            balance=balance,
        )
        return Measured(
            profile,
            numbers,
            categories,
            empty,
            strange_labels=tuple(name for name in balance if name not in map(str, self._classes)),
            extra=tuple(str(name) for name in frame.columns if name not in self.frame.columns),
        )

    def _balance(self, frame: pd.DataFrame) -> dict[str, float]:
        """The share of each class by the hold-out's name for it; as written where a label is none of them."""
        if not self._classes or self.target not in frame.columns:
            return {}
        labels = frame[self.target].dropna()
        try:
            counts = np.bincount(places_of(labels, self._classes, ""), minlength=len(self._classes))
            return {str(name): _share(int(rows), len(labels)) for name, rows in zip(self._classes, counts, strict=True)}
        except BazaarError:
            shares = pd.Series(names(labels)).value_counts(normalize=True)
            return {str(name): float(share) for name, share in shares.items()}


def _numbers(values: Floats, own: Floats) -> Numbers:
    known, usual = values[~np.isnan(values)], own[~np.isnan(own)]
    if not len(usual) or not len(known):
        return Numbers(len(known))
    outside = int(((known < usual.min()) | (known > usual.max())).sum())
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(usual.mean()), float(usual.std())
        distance = abs(float(known.mean()) - mean) / (scale or max(abs(mean), 1.0))
    return Numbers(len(known), outside, min(distance, FARTHEST) if np.isfinite(distance) else FARTHEST)


def _categories(texts: Names, known: set[str]) -> Categories:
    counts = pd.Series(texts).value_counts()
    strange = counts[[name not in known for name in counts.index]]
    return Categories(int(counts.sum()), int(strange.sum()), tuple(map(str, strange.index[:MOST_STRANGE])))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


class Columns(NamedTuple):
    """The columns of one table by name."""

    floats: dict[str, Floats]
    names: dict[str, Names]


def comparable(frame: pd.DataFrame, kinds: Mapping[str, Understood]) -> Columns:
    """The columns of `kinds` that the table has."""
    there = {name: kind for name, kind in kinds.items() if name in frame.columns}
    return Columns(
        {name: floats(frame[name], kind) for name, kind in there.items() if kind in ("number", "date")},
        {name: names(frame[name]) for name, kind in there.items() if kind in NAMES},
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
    if holds_bytes(column):
        digests = (hashlib.sha256(blob).hexdigest() if isinstance(blob, bytes) else None for blob in column)
        return np.array(list(digests), dtype=object)
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
