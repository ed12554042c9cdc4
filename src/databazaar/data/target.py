"""The target of a table: the rows of which it is known, and the classes of a classification by their own names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, Texts, as_numbers, as_texts, kind_of, listed, plain, suggestion
from databazaar.data.schema_message import LARGEST_LABEL, MAX_CATEGORIES, TaskKind
from databazaar.data.text_values import FALSE_WORDS, MISSING_WORDS, TRUE_WORDS, look_like_codes
from databazaar.errors import BazaarError

Classes = tuple[int | str, ...]
_TRUE, _FALSE = "\0true", "\0false"


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


def classes_of(column: Column, where: str) -> Classes:
    """Whole numbers as numbers, anything else by its text; in sorted order."""
    column = plain(column)
    classes: Classes
    if pd.api.types.infer_dtype(column, skipna=True) == "boolean":  # and not words for true and false
        classes = tuple(str(value) for value in (False, True) if (column == value).any())
    elif kind_of(column) == "text" and not _whole_numbers(as_texts(column, where)):
        classes = tuple(sorted(as_texts(column, where).texts))
    else:
        classes = _numbers(column, where)
    if len(classes) == 1:
        raise BazaarError(
            f"{where}: column {column.name!r} has the single class {classes[0]}, so there is nothing to tell "
            "apart: add hold-out rows of another class"
        )
    if len(classes) > MAX_CATEGORIES:
        raise BazaarError(
            f"{where}: column {column.name!r} has {len(classes)} classes, more than {MAX_CATEGORIES}: "
            'group them, or set task = "regression"'
        )
    return classes


def places_of(column: Column, classes: Classes, where: str) -> npt.NDArray[np.int64]:
    """Each row's place among the classes. Names match trimmed, in any case, and as words for true and false."""
    column = plain(column)
    if kind_of(column) in ("date", "other"):
        raise BazaarError(
            f"{where}: column {column.name!r} holds {column.dtype} values and the hold-out has "
            f"the classes {listed(map(str, classes))}: write the same classes"
        )
    found = as_texts(column, where)
    known = spellings_of(classes)
    places = found.spread(np.array([place_of(text, known) for text in found.texts], dtype=np.int64), -1)
    if (places < 0).any():
        row = int((places < 0).argmax())
        label = found.texts[found.codes[row]][:40]
        raise BazaarError(
            f"{where}: column {column.name!r} has the class {label} in data row {row + 1}, which the hold-out does "
            f"not have (its classes: {', '.join(map(str, classes[:8]))}): "
            "correct the label, drop the row, or add the class to the hold-out"
        )
    return places


def spellings_of(classes: Classes) -> dict[str, int]:
    """Every spelling that stands for exactly one class."""
    names = {str(name): place for place, name in enumerate(classes)}
    folded = [name.casefold() for name in names]
    meant = [_meaning(name) for name in names]
    for spellings in (folded, meant if sorted(meant) == [_FALSE, _TRUE] else []):
        for place, name in enumerate(spellings):
            if spellings.count(name) == 1:
                names.setdefault(name, place)
    return names


def place_of(text: str, known: dict[str, int]) -> int:
    """The class of which this is a spelling, or -1."""
    number = _whole(text)
    spellings = (text, text.casefold(), _meaning(text), *([str(number)] if number is not None else []))
    return next((known[spelling] for spelling in spellings if spelling in known), -1)


def _meaning(text: str) -> str:
    """True and false in one spelling, which no text has."""
    folded = text.casefold()
    return _TRUE if folded in TRUE_WORDS else _FALSE if folded in FALSE_WORDS else folded


def _whole(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def _whole_numbers(found: Texts) -> bool:
    """Whether the texts are numbers; 0.5 among them is a number that is no class, and not a name."""
    try:
        numbers = [float(text) for text in found.texts]
    except ValueError:
        return False
    return all(number == number for number in numbers) and not look_like_codes(found.texts)


def _numbers(column: Column, where: str) -> tuple[int, ...]:
    values = as_numbers(column, where, "a class is a name or a whole number")
    odd = (values != np.floor(values)) | (np.abs(values) > LARGEST_LABEL)
    if odd.any():
        row = int(odd.argmax())
        raise BazaarError(
            f"{where}: column {column.name!r} has {values[row]:g} in data row {row + 1}, which is no class label: "
            'write labels as names or whole numbers, or set task = "regression"'
        )
    return tuple(int(value) for value in np.unique(values))
