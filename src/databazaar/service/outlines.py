"""What is shown of a table, found out once for all who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.service.reading import read_apart
from databazaar.service.settings import Settings

MOST_COLUMNS = 10_000
REMEMBERED = 500
_lock = threading.Lock()
_known: OrderedDict[Path, Outline] = OrderedDict()


@dataclass(frozen=True)
class Outline:
    """What is shown of a table: how many rows, and each column's name and kind. Never a value."""

    rows: int
    columns: list[dict[str, Any]]


def outline(settings: Settings, path: Path, name: str = "", whose: str = "") -> Outline:
    """What is shown of a table; what is none is refused as databazaar.data does it, under the `name` it came with.
    `whose` is the organisation that waits for it.
    """
    with _lock:
        known = _known.get(path)
    return known or Outline(**read_apart(settings, found_in, path, name=name, whose=whose))


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


def found_in(path: Path) -> dict[str, Any]:
    """Reads the table, which takes several times its size in memory; for a process of its own."""
    from databazaar.data.tables import read_table

    frame = read_table(path).frame
    if len(frame.columns) > MOST_COLUMNS:
        raise BazaarError(
            f"{path} has {len(frame.columns):,} columns, and a table has {MOST_COLUMNS:,} at the most: leave some out"
        )
    columns = [{"name": str(column), "kind": _kind(frame[column])} for column in frame.columns]
    return {"rows": len(frame), "columns": columns}


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
