"""What the hold-out decides: the feature columns, which of them are categories, and the classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, kind_of, mostly_numbers, refuse_missing, refuse_text, suggestion
from databazaar.data.schema_message import LARGEST_LABEL, MAX_CATEGORIES
from databazaar.errors import BazaarError


def chosen_columns(
    names: list[str],
    target: str,
    features: Sequence[str] | None,
    categorical: Sequence[str] | None,
    where: str,
) -> list[str]:
    chosen = [name for name in names if name != target] if features is None else list(features)
    for setting, wanted in (("features", chosen), ("categorical", list(categorical or ()))):
        for name in wanted:
            if name == target:
                raise BazaarError(f"{where}: `{setting}` names the target column {name!r}: take it out of the list")
            if name not in names:
                raise BazaarError(
                    f"{where}: `{setting}` names the column {name!r}, which is not there; "
                    f"{suggestion(name, names)}: correct `{setting}`"
                )
            if wanted.count(name) > 1:
                raise BazaarError(f"{where}: `{setting}` names the column {name!r} twice: name it once")
    for name in categorical or ():
        if name not in chosen:
            raise BazaarError(
                f"{where}: `categorical` names the column {name!r}, which is not among `features`: add it there"
            )
    if not chosen:
        raise BazaarError(
            f"{where}: there is no feature column besides the target {target!r}: "
            "add columns, or name them in `features`"
        )
    return chosen


def is_categorical(column: Column, named: bool, where: str) -> bool:
    refuse_missing(column, where)
    if named or isinstance(column.dtype, pd.CategoricalDtype):
        return True
    kind = kind_of(column)
    if kind == "text" and mostly_numbers(column):
        refuse_text(column, where, "the rest is mostly numbers (to keep it as text, list it as `categorical`)")
    return kind != "number"


def categories_of(texts: list[str], name: str, where: str) -> tuple[str, ...]:
    categories = tuple(sorted(set(texts)))
    if len(categories) > MAX_CATEGORIES:
        raise BazaarError(
            f"{where}: column {name!r} has {len(categories)} different categories, more than "
            f"{MAX_CATEGORIES}: if it is an identifier leave it out of `features`, otherwise group its values"
        )
    return categories


def classes_of(values: npt.NDArray[np.float64], target: str, where: str) -> tuple[int, ...]:
    odd = (values != np.floor(values)) | (np.abs(values) > LARGEST_LABEL)
    if odd.any():
        row = int(odd.argmax())
        raise BazaarError(
            f"{where}: column {target!r} has {values[row]:g} in data row {row + 1}, which is no class label: "
            'write labels as whole numbers, or set task = "regression"'
        )
    classes = tuple(int(value) for value in np.unique(values))
    if len(classes) == 1:
        raise BazaarError(
            f"{where}: column {target!r} has the single class {classes[0]}, so there is nothing to tell "
            "apart: add hold-out rows of another class"
        )
    if len(classes) > MAX_CATEGORIES:
        raise BazaarError(
            f"{where}: column {target!r} has {len(classes)} classes, more than {MAX_CATEGORIES}: "
            'group them, or set task = "regression"'
        )
    return classes
