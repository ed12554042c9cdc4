"""What the hold-out decides: the feature columns, and what kind of column each of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import (
    Column,
    Floats,
    Texts,
    as_days,
    as_numbers,
    as_texts,
    kind_of,
    plain,
    refuse_unreadable,
    suggestion,
)
from databazaar.data.encoders import (
    CategoricalColumn,
    DateColumn,
    Encoder,
    HashedColumn,
    ImageColumn,
    NumericColumn,
    TextColumn,
)
from databazaar.data.images import Size, holds_bytes, usual_size
from databazaar.data.schema_message import MAX_COMMON, MAX_SLOTS, LeftOut
from databazaar.data.text_values import days_in, look_like_codes, numbers_in
from databazaar.data.words import GramBuckets, is_free_text
from databazaar.errors import BazaarError

MOST_CATEGORIES = 128
"""A column with more categories than this is hashed."""
LONGEST_CATEGORY = 200
"""A column with a longer text than this is hashed: it would travel to every provider."""
BUCKETS, WORD_BUCKETS = 64, 512
"""Of hashed names, and of the words of texts where a model takes them as features."""
FEWEST_TEXTS = 20
"""Fewer different texts are names."""
COMMON_SHARE, LONG = 0.02, 0.95
"""In what part of the rows a gram is common; and the part of the texts that have slots for all their grams."""
RARE_ROWS, RARE_SHARE = 10, 0.01
"""A category with fewer rows than both is rare, and grouped with the other rare ones."""
IDENTIFIERS = 0.95
"""A column of names of which more than this share of the rows differ has nothing to recognise in other rows."""
TYPING_ERRORS = 0.05
"""The largest share of a column's values that is taken for typing errors among numbers or dates."""


Said = Literal["categorical", "text"]
"""What market.toml says of a column."""


def kinds_said(categorical: Sequence[str] | None, text: Sequence[str] | None) -> dict[str, Said]:
    """What is said of each column that is named."""
    return {**dict.fromkeys(text or (), "text"), **dict.fromkeys(categorical or (), "categorical")}


def chosen_columns(
    names: list[str],
    target: str,
    features: Sequence[str] | None,
    categorical: Sequence[str] | None,
    text: Sequence[str] | None,
    where: str,
) -> list[str]:
    chosen = [name for name in names if name != target] if features is None else list(features)
    known, listed = set(names), set(chosen)
    kinds: dict[str, Sequence[str]] = {"categorical": categorical or (), "text": text or ()}
    for setting, wanted in {"features": features or (), **kinds}.items():
        times = Counter(wanted)
        for name in wanted:
            if name == target:
                raise BazaarError(f"{where}: `{setting}` names the target column {name!r}: take it out of the list")
            if name not in known:
                raise BazaarError(
                    f"{where}: `{setting}` names the column {name!r}, which is not there; "
                    f"{suggestion(name, names)}: correct `{setting}`"
                )
            if times[name] > 1:
                raise BazaarError(f"{where}: `{setting}` names the column {name!r} twice: name it once")
    for setting, wanted in kinds.items():
        for name in wanted:
            if name not in listed:
                raise BazaarError(
                    f"{where}: `{setting}` names the column {name!r}, which is not among `features`: add it there"
                )
    for name in kinds["text"]:
        if name in kinds["categorical"]:
            raise BazaarError(
                f"{where}: `text` and `categorical` both name the column {name!r}: name it in one of them"
            )
    if not chosen:
        raise BazaarError(
            f"{where}: there is no feature column besides the target {target!r}: "
            "add columns, or name them in `features`"
        )
    return chosen


def fit_column(
    column: Column,
    said: Said | None,
    wanted: bool,
    day_first: bool | None,
    where: str,
    image: Size | None = None,
) -> Encoder | LeftOut:
    """What kind of column this is. It may be listed in market.toml: as what it is `said` to be, or `wanted` as a
    feature."""
    name = str(column.name)
    if holds_bytes(column):
        return ImageColumn.fit(name, column, image or usual_size(column))
    names = said == "categorical" or isinstance(column.dtype, pd.CategoricalDtype)
    column = plain(column)
    kind = said or ("names" if names else kind_of(column))
    if column.isna().all():
        return LeftOut.model_construct(name=name, why="empty")
    if kind == "number":
        return NumericColumn.fit(name, as_numbers(column, where, "numbers were expected"))
    if kind == "date":
        return _dates(name, as_days(column, where, day_first=True), day_first=True)
    found = as_texts(column, where)
    if not found.texts:
        return LeftOut.model_construct(name=name, why="empty")
    read = _read(column, found, day_first, where) if kind == "text" and said is None else None
    if read is not None:
        return read
    if said == "text" or (kind == "text" and _is_free_text(found)):
        return _words(name, found)
    many = len(found.texts) > max(MOST_CATEGORIES, IDENTIFIERS * found.counts.sum())
    if many and not (names or wanted):
        return LeftOut.model_construct(name=name, why="identifier")
    return _categories(name, found)


def _read(column: Column, found: Texts, day_first: bool | None, where: str) -> Encoder | LeftOut | None:
    """Text that reads as numbers or as dates, but for what stands for a missing value; None for names."""
    name = str(column.name)
    if look_like_codes(found.texts):
        return None
    numbers = numbers_in(found.texts)
    if _all_but_errors(column, found, numbers.values, numbers.unreadable, "numbers", where):
        return NumericColumn.fit(name, found.spread(numbers.values, np.nan))
    dates = days_in(found.texts, day_first)
    if _all_but_errors(column, found, dates.values, dates.unreadable, "dates", where):
        return _dates(name, found.spread(dates.values, np.nan), dates.day_first)
    return None


def _all_but_errors(
    column: Column, found: Texts, values: Floats, unreadable: npt.NDArray[np.bool_], what: str, where: str
) -> bool:
    """Whether every text was read; raises where so few were not that they are typing errors."""
    bad, good = found.counts[unreadable].sum(), found.counts[~np.isnan(values)].sum()
    if 0 < bad < good and bad <= max(1, TYPING_ERRORS * (bad + good)):
        expected = f"the rest is {what} (to keep all as text, list the column as `categorical`)"
        remedy = "correct it, list it as `missing` in market.toml if it stands for no value,"
        refuse_unreadable(column, found, unreadable, where, expected, remedy)
    return bool(good and not bad)


def _dates(name: str, days: Floats, day_first: bool) -> DateColumn | LeftOut:
    fitted = DateColumn.fit(name, days, day_first)
    return fitted if fitted.parts else LeftOut.model_construct(name=name, why="constant")


def _categories(name: str, found: Texts) -> CategoricalColumn | HashedColumn:
    counts = found.counts
    rows, missing = int(counts.sum()), bool((found.codes < 0).any())
    rare = counts < min(RARE_ROWS, RARE_SHARE * rows)
    many = len(counts) > MOST_CATEGORIES or counts[rare].sum() > rows / 2
    if many or max(map(len, found.texts)) > LONGEST_CATEGORY:
        return HashedColumn.model_construct(name=name, buckets=BUCKETS, missing=missing)
    kept = sorted(text for text, grouped in zip(found.texts, rare, strict=True) if not grouped)
    return CategoricalColumn.model_construct(name=name, categories=tuple(kept), other=bool(rare.any()), missing=missing)


def _is_free_text(found: Texts) -> bool:
    """Whether texts are many and most of them are several words."""
    many = len(found.texts) > MOST_CATEGORIES or 2 * len(found.texts) > found.counts.sum()
    return len(found.texts) >= FEWEST_TEXTS and many and 2 * sum(map(is_free_text, found.texts)) > len(found.texts)


def _words(name: str, found: Texts) -> TextColumn:
    """The most frequent of the common grams are kept as numbers of their buckets; with equal counts the lowest ones."""
    buckets, counts = GramBuckets(name), Counter[int]()
    sizes = []
    for text, rows in zip(found.texts, found.counts.tolist(), strict=True):
        there = buckets.of(text)
        sizes.append(len(there))
        counts.update(dict.fromkeys(there, rows))
    least = max(RARE_ROWS, COMMON_SHARE * found.counts.sum())
    common = sorted((bucket for bucket, rows in counts.items() if rows >= least), key=lambda one: (-counts[one], one))
    slots = int(np.quantile(sizes, LONG, method="higher"))
    return TextColumn.model_construct(
        name=name,
        buckets=WORD_BUCKETS,
        slots=min(max(slots, 1), MAX_SLOTS),
        common=tuple(common[:MAX_COMMON]),
        missing=bool((found.codes < 0).any()),
    )
