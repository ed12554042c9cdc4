"""A table's column names, and the rows of which the target is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import as_texts, kind_of, plain, suggestion
from databazaar.data.number_text import MISSING_WORDS
from databazaar.data.schema_message import TaskKind
from databazaar.errors import BazaarError


def labelled(frame: pd.DataFrame, target: str, task: TaskKind, where: str) -> pd.DataFrame:
    """The rows of which the target is known. The caller says how many were left out."""
    check_target(column_names(frame, where), target, where)
    gone = without_target(frame, target, task)
    if gone.all():
        raise BazaarError(
            f"{where}: the target column {target!r} is empty in every row: fill it in", place="data.target"
        )
    return frame[~gone].reset_index(drop=True) if gone.any() else frame


def check_target(names: Sequence[str], target: str, where: str, whose: str = "") -> None:
    if target not in names:
        remedy = "add or rename the column" if whose else "correct `target` or add the column"
        raise BazaarError(
            f"{where}: the target column {target!r}{whose} is missing; {suggestion(target, names)}: {remedy}",
            place="data.target",
        )


def refuse_without_target(frame: pd.DataFrame, target: str, task: TaskKind, where: str) -> None:
    gone = without_target(frame, target, task)
    if gone.any():
        raise BazaarError(
            f"{where}: column {target!r} has no value in data row {int(gone.argmax()) + 1} "
            "(it is empty, NaN, NA or null): fill it in or drop the row"
        )


def column_names(frame: pd.DataFrame, where: str) -> list[str]:
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise BazaarError(f"{where}: the column name {name!r} is not text: rename the column")
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise BazaarError(f"{where}: the column {repeated!r} appears more than once: rename or drop one of them")
    if not len(frame):
        raise BazaarError(f"{where}: the table has no rows: add data or leave the table out")
    return names


def without_target(frame: pd.DataFrame, target: str, task: TaskKind) -> npt.NDArray[np.bool_]:
    """The rows of which the target is not known: empty, NaN or null; in a regression also "n/a" and the like."""
    column = plain(frame[target])
    if kind_of(column) != "text":
        return column.isna().to_numpy(dtype=np.bool_)
    found = as_texts(column, target)
    words = MISSING_WORDS if task == "regression" else frozenset[str]()
    return found.spread(np.array([text.casefold() in words for text in found.texts], dtype=np.bool_), True)
