"""What files and tables tell of themselves: names for market.toml, the column to predict, and what is no feature."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from pandas.api import types

from databazaar.data.column_traits import distinct, holds_written_numbers, is_identifier
from databazaar.data.columns import Column, kind_of, listed, plain
from databazaar.data.holdout import LeftOut, fit_column
from databazaar.data.schema_message import TaskKind
from databazaar.data.tables import SUFFIXES
from databazaar.errors import BazaarError

Ask = Callable[[str, Sequence[str]], str]
"""Asks a person one question that has these answers."""
LONGEST_ID, LONGEST_NAME = 60, 200
FEW = 20
"""So many different values, at most, are classes."""
_SAYS_SO = {"target", "label", "labels", "class", "y", "outcome", "response"}
_USUALLY_IS = {
    *("fraud", "fraudulent", "default", "defaulted", "churn", "churned", "survived", "diagnosis", "disease"),
    *("late", "delayed", "cancelled", "converted", "conversion", "clicked", "bought", "purchased", "approved"),
    *("attrition", "readmitted", "quality", "species", "spam"),
}


def guess_target(
    frame: pd.DataFrame,
    others: Sequence[Sequence[str]],
    where: str,
    ask: Ask | None = None,
) -> str:
    """The column to predict: by its name, as the only one that a table of `others` lacks, or the last of few values.

    >>> guess_target(pd.DataFrame({"amount": [1.5, 2.5], "is_fraud": [0, 1]}), [["amount", "is_fraud"]], "own.csv")
    'is_fraud'
    """
    names = [str(name) for name in frame.columns]
    shared = [name for name in names if not others or any(name in columns for columns in others)]
    for candidates in _hints(shared, others):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            return _chosen(candidates, where, ask)
    few = [name for name in shared if 2 <= distinct(frame[name]) <= FEW]
    if few and few[-1] == names[-1]:
        return names[-1]
    return _chosen([*few, *(name for name in shared[-1:] if name not in few)], where, ask)


def _hints(names: list[str], others: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Columns that may be the target, the surest hint first."""
    for known in (_SAYS_SO, _USUALLY_IS):
        yield [name for name in names if name.casefold() in known]
        yield [name for name in names if known & set(re.findall(r"[^\W\d_]+", name.casefold()))]
    lacking = ([name for name in names if name not in columns] for columns in others)
    yield sorted({absent[0] for absent in lacking if len(absent) == 1})


def _chosen(candidates: list[str], where: str, ask: Ask | None) -> str:
    if ask is not None and candidates:
        return ask("Which column is to be predicted?", candidates)
    likely = f"; it may be {listed(candidates)}" if candidates else ""
    raise BazaarError(f"{where}: no column is surely the one to predict{likely}: say which with `--target NAME`")


def guess_task(target: Column) -> TaskKind:
    """Text and few whole numbers are classes; any other numbers are to be estimated.

    >>> guess_task(pd.Series(["yes", "no"])), guess_task(pd.Series([0, 1])), guess_task(pd.Series([0.5, 1.5]))
    ('classification', 'classification', 'regression')
    """
    values = plain(target.dropna())
    if kind_of(values) != "number" or types.is_bool_dtype(values.dtype):
        many_numbers = distinct(values) > FEW and holds_written_numbers(values)
        return "regression" if many_numbers else "classification"
    whole = bool((values == values.round()).all())
    return "classification" if whole and distinct(values) <= FEW else "regression"


def unused_columns(frame: pd.DataFrame, target: str) -> dict[str, str]:
    """The columns that would be taken for features and are none, each with the reason."""
    unused = {}
    for name in map(str, frame.columns):
        if name == target:
            continue
        try:
            fitted = fit_column(frame[name], categorical=False, wanted=False, day_first=None, where="")
        except BazaarError as reason:
            unused[name] = str(reason).removeprefix(": ")
            continue
        if not isinstance(fitted, LeftOut) and is_identifier(frame[name]):
            unused[name] = "it is different in every row, as an identifier is"
    if unused:
        unused |= {name: "market.toml cannot hold its name" for name in map(str, frame.columns) if not writable(name)}
    return unused


def table_suffix(path: Path) -> str | None:
    """How the name says that a file is a table: ".csv.gz" for north.csv.gz."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def stem_of(path: Path) -> str:
    """The name without what says that it is a table.

    >>> stem_of(Path("data/north.2024.csv.gz"))
    'north.2024'
    """
    return path.name[: -len(suffix)] if (suffix := table_suffix(path)) else path.stem


def provider_ids(paths: Iterable[Path]) -> list[str]:
    """An id for each file: its name in small letters, with a number where two would be alike.

    >>> provider_ids([Path("Bank North.csv"), Path("bank-north.parquet"), Path("?.csv")])
    ['bank-north', 'bank-north-2', 'provider']
    """
    ids: list[str] = []
    taken: set[str] = set()
    for path in paths:
        plain = unicodedata.normalize("NFKC", stem_of(path)).casefold()
        plain = re.sub(r"[^\w.-]+", "-", plain)[:LONGEST_ID].strip("-._") or "provider"
        choices = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
        ids.append(next(choice for choice in choices if choice not in taken))
        taken.add(ids[-1])
    return ids


def writable(name: str) -> bool:
    """Whether market.toml can hold a name: visible, without spaces around it, not too long."""
    return name == name.strip() and bool(name) and name.isprintable() and len(name) <= LONGEST_NAME
