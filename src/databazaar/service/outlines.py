"""What is shown of a table, found out once: to read one takes several times its size in memory, and seconds.

So only a few are read at a time, and of each organisation fewer still: no one keeps the others waiting.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.service.errors import InvalidError, TooManyError

MOST_COLUMNS = 10_000
AT_ONCE, AT_ONCE_OF_ONE, PATIENCE = 3, 2, 60.0
REMEMBERED = 500
_places = threading.BoundedSemaphore(AT_ONCE)
_lock = threading.Lock()
_reading: Counter[str] = Counter()
_known: OrderedDict[Path, Outline] = OrderedDict()


@dataclass(frozen=True)
class Outline:
    """What is shown of a table: how many rows, and each column's name and kind. Never a value."""

    rows: int
    columns: list[dict[str, Any]]


def columns_of(path: Path) -> list[dict[str, Any]]:
    """The names and kinds of a table's columns."""
    return outline(path).columns


def outline(path: Path, name: str = "", whose: str = "") -> Outline:
    """What is shown of a table; what is none is refused as databazaar.data does it, under the `name` it came with.
    `whose` is the organisation that waits for it.
    """
    with _lock:
        known = _known.get(path)
    if known is not None:
        return known
    with _turn(whose):
        frame = _readable(path, name)
        columns = [{"name": str(column), "kind": _kind(frame[column])} for column in frame.columns]
        return Outline(len(frame), columns)


def remember(path: Path, found: Outline) -> None:
    """For a file that never changes: it is called by its hash."""
    with _lock:
        _known[path] = found
        while len(_known) > REMEMBERED:
            _known.popitem(last=False)


def forget(path: Path) -> None:
    """For a file that is gone."""
    with _lock:
        _known.pop(path, None)


@contextmanager
def _turn(whose: str) -> Iterator[None]:
    with _lock:
        if _reading[whose] >= AT_ONCE_OF_ONE:
            raise TooManyError(f"{AT_ONCE_OF_ONE} tables of yours are being read: try again when they are done")
        _reading[whose] += 1
    try:
        if not _places.acquire(timeout=PATIENCE):
            raise TooManyError("the hub reads as many tables at once as it can: try again in a minute")
        try:
            yield
        finally:
            _places.release()
    finally:
        with _lock:
            _reading[whose] -= 1
            if not _reading[whose]:
                del _reading[whose]


def _readable(path: Path, name: str) -> Any:
    from databazaar.data.tables import read_table

    try:
        frame = read_table(path).frame
    except BazaarError as fault:
        raise InvalidError(str(fault).replace(str(path), name or path.name)) from None
    if len(frame.columns) > MOST_COLUMNS:
        raise InvalidError(
            f"{name or path.name} has {len(frame.columns):,} columns, and a table has {MOST_COLUMNS:,} at the most: "
            "leave some out"
        )
    return frame


def _kind(column: Any) -> str:
    """number, date, category, text (too many different ones, or none of these) or empty."""
    from databazaar.data.encoders import CategoricalColumn, DateColumn, NumericColumn
    from databazaar.data.holdout import LeftOut, fit_column

    try:
        fitted = fit_column(column, categorical=False, wanted=False, day_first=None, where="")
    except BazaarError:  # its sentence would show a value
        return "text"
    kinds = {NumericColumn: "number", DateColumn: "date", CategoricalColumn: "category"}
    if isinstance(fitted, LeftOut):
        return {"empty": "empty", "constant": "date", "identifier": "text"}[fitted.why]
    return kinds.get(type(fitted), "text")
