"""How one column becomes features: standardised numbers, categories, hashed ones, dates by their parts, and words.

Each kind has what the hold-out taught it as plain fields, and writes its features into `out`, a slice [rows, width]
of zeros. Encoded numbers are held within ±`LIMIT` scales of the hold-out's mean: an outlier in somebody's file
stays finite in float32 and cannot wreck a training step by itself.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from databazaar.data.columns import Column, Floats, Texts, as_days, as_numbers, as_texts, kind_of, listed, plain
from databazaar.data.images import Size, holds_bytes, pixels
from databazaar.data.schema_message import (
    MAX_WIDTH,
    CategoricalFields,
    DateFields,
    DatePart,
    HashedFields,
    ImageFields,
    NumericFields,
    TextFields,
)
from databazaar.data.words import GramBuckets, bucket_of, words_of
from databazaar.errors import BazaarError

Features: TypeAlias = npt.NDArray[np.float32]
LIMIT = 10.0


class NumericColumn(NumericFields):
    """A column standardised as (value - mean) / scale; a constant column has scale 1. A missing value is the hold-out's
    median. Where the hold-out misses some, `missing` adds a 0/1 feature."""

    @classmethod
    def fit(cls, name: str, values: Floats) -> NumericColumn:
        """Over the values that are there: the same for any order of the rows, finite for any finite values."""
        given = np.sort(values[~np.isnan(values)])
        missing = len(given) < len(values)
        lower, upper = float(given[(len(given) - 1) // 2]), float(given[len(given) // 2])
        median = (lower if lower == upper else lower / 2 + upper / 2) + 0.0
        largest = max(abs(float(given[0])), abs(float(given[-1])))
        if given[0] == given[-1]:
            return cls.model_construct(name=name, mean=float(given[0]) + 0.0, scale=1.0, median=median, missing=missing)
        shrunk = given / largest
        mean, scale = float(shrunk.mean()) * largest, float(shrunk.std()) * largest
        usable = scale > largest * 1e-12 and scale > np.finfo(np.float64).tiny
        scale = scale if usable else 1.0
        return cls.model_construct(name=name, mean=mean + 0.0, scale=scale, median=median, missing=missing)

    @property
    def width(self) -> int:
        """How many features there are, counted without naming them; likewise for the other kinds."""
        return 1 + self.missing

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} (missing)") if self.missing else (self.name,)

    def encode(self, column: Column, out: Features, where: str) -> None:
        self.fill(as_numbers(column, where, "the hold-out has numbers"), out)

    def fill(self, values: Floats, out: Features) -> None:
        """The features of numbers that have been read, NaN where one is missing."""
        gone = np.isnan(values)
        out[:, 0] = standardised(np.where(gone, self.median, values), self.mean, self.scale)
        if self.missing:
            out[:, 1] = gone


class CategoricalColumn(CategoricalFields):
    """A column as one 0/1 feature per category of the hold-out. Where the hold-out has rare categories, `other` adds a
    feature for them and for all that it does not have; otherwise those are all zeros. Where it misses values, `missing`
    adds a feature for these."""

    @property
    def width(self) -> int:
        return len(self.categories) + self.other + self.missing

    @property
    def place_of_others(self) -> int:
        """The feature of what is none of the categories; -1 where there is none."""
        return len(self.categories) if self.other else -1

    @property
    def place_of_missing(self) -> int:
        return len(self.categories) + self.other if self.missing else -1

    @property
    def feature_names(self) -> tuple[str, ...]:
        extra = [f"{self.name} ({kind})" for kind in ("other", "missing") if getattr(self, kind)]
        return (*(f"{self.name}={category}" for category in self.categories), *extra)

    def encode(self, column: Column, out: Features, where: str) -> None:
        found = self.texts(column, where)
        places = {category: place for place, category in enumerate(self.categories)}
        marked = np.array([places.get(text, self.place_of_others) for text in found.texts], dtype=np.int64)
        mark(out, found.spread(marked, self.place_of_missing))

    def texts(self, column: Column, where: str) -> Texts:
        """What the column says. Numbers that are no spelling of the categories are refused: it is another column."""
        found = as_texts(column, where)
        foreign = not self.other and found.texts and not set(found.texts) & set(self.categories)
        if foreign and kind_of(plain(column)) == "number":
            raise BazaarError(
                f"{where}: column {self.name!r} holds numbers ({found.texts[0]}, for one) where the hold-out has the "
                f"categories {listed(self.categories, 4)}: write the same categories or leave the column out"
            )
        return found


class HashedColumn(HashedFields):
    """A column of many categories: each is a 1 in one of `buckets` features, which it may share with others. A category
    has the same bucket, `bucket_of`, in every table; nothing of the hold-out's categories is kept."""

    @property
    def width(self) -> int:
        return self.buckets + self.missing

    @property
    def place_of_missing(self) -> int:
        return self.buckets if self.missing else -1

    @property
    def feature_names(self) -> tuple[str, ...]:
        hashed = tuple(f"{self.name} (bucket {place})" for place in range(self.buckets))
        return (*hashed, f"{self.name} (missing)") if self.missing else hashed

    def encode(self, column: Column, out: Features, where: str) -> None:
        found = as_texts(column, where)
        places = np.array([bucket_of(text, self.buckets) for text in found.texts], dtype=np.int64)
        mark(out, found.spread(places, self.place_of_missing))


class DateColumn(DateFields):
    """A column of dates or times by `parts`: days, standardised, and places in the year, the week and the day. A place
    in a cycle is its sine and cosine, so that Sunday is near Monday. A missing date has the hold-out's median day and
    no place in any cycle; where the hold-out misses some, `missing` adds a 0/1 feature."""

    @classmethod
    def fit(cls, name: str, days: Floats, day_first: bool) -> DateColumn:
        """Only parts in which the hold-out's rows differ are kept; where there is none, nothing tells them apart."""
        given = days[~np.isnan(days)]
        parts: list[DatePart] = ["days"] if len(np.unique(np.floor(given))) > 1 else []
        parts += [part for part in ("year", "week", "day") if len(np.unique(place_in(part, given))) > 1]
        scaled = NumericColumn.fit(name, days)
        return cls.model_construct(parts=tuple(parts), day_first=day_first, **scaled.model_dump())

    @property
    def width(self) -> int:
        return sum(1 if part == "days" else 2 for part in self.parts) + self.missing

    @property
    def feature_names(self) -> tuple[str, ...]:
        names = []
        for part in self.parts:
            names += ["days"] if part == "days" else [f"time of {part}, sine", f"time of {part}, cosine"]
        return tuple(f"{self.name} ({name})" for name in [*names, *(["missing"] if self.missing else [])])

    def encode(self, column: Column, out: Features, where: str) -> None:
        self.fill(as_days(column, where, self.day_first), out)

    def fill(self, days: Floats, out: Features) -> None:
        """The features of days that have been read, NaN where one is missing."""
        gone = np.isnan(days)
        filled = np.where(gone, self.median, days)
        place = 0
        for part in self.parts:
            if part == "days":
                out[:, place] = standardised(filled, self.mean, self.scale)
                place += 1
                continue
            angle = 2 * np.pi * place_in(part, filled)
            out[:, place] = np.where(gone, 0.0, np.sin(angle))
            out[:, place + 1] = np.where(gone, 0.0, np.cos(angle))
            place += 2
        if self.missing:
            out[:, place] = gone


class TextColumn(TextFields):
    """A column of free text by the words in it: each is in one of `buckets` features, by the hash of hashed categories,
    and each feature that a text has is 1 / √(the features that it has). A missing text has none.

    Trees take how many words a text has, and whether each of the grams that are `common` in the hold-out is there. The
    blend of trees and a linear model takes the buckets of the first `slots` grams besides (data/words.py)."""

    @property
    def width(self) -> int:
        return self.buckets + self.missing

    @property
    def feature_names(self) -> tuple[str, ...]:
        words = tuple(f"{self.name} (words {place})" for place in range(self.buckets))
        return (*words, f"{self.name} (missing)") if self.missing else words

    def encode(self, column: Column, out: Features, where: str) -> None:
        found = as_texts(column, where)
        self.fill(found.spread(np.array(found.texts, dtype=object), None), out)

    def fill(self, texts: npt.NDArray[Any], out: Features) -> None:
        """The features of each row's text, or None."""
        for row, text in enumerate(texts):
            if text is None:
                out[row, self.buckets :] = 1.0
            elif places := list({bucket_of(word, self.buckets) for word in words_of(text)}):
                out[row, places] = len(places) ** -0.5

    def fill_tree(self, column: Column, out: Features, grams: Features, where: str) -> None:
        """What trees take, and the buckets of grams, NaN where a text has fewer than `grams` has room for."""
        found, buckets, common = as_texts(column, where), GramBuckets(self.name), np.array(self.common, dtype=np.int64)
        few = np.full((len(found.texts) + 1, out.shape[1]), np.nan)
        wide = np.full((len(found.texts) + 1, grams.shape[1]), np.nan, dtype=np.float32)
        for row, text in enumerate(found.texts):
            there = buckets.of(text)
            few[row] = [len(words_of(text)), *np.isin(common, there)]
            kept = there[: grams.shape[1]]
            wide[row, : len(kept)] = kept
        out[:], grams[:] = few[found.codes], wide[found.codes]


class ImageColumn(ImageFields):
    """A column of images, each as its numbers by channel, row and column, standardised by channel. A missing image is
    all zeros, which is the hold-out's mean."""

    @classmethod
    def fit(cls, name: str, column: Column, size: Size) -> ImageColumn:
        """Means and deviations of the channels over the images of the hold-out."""
        if size[0] not in (1, 3):
            raise BazaarError(f"images have 1 channel (grey) or 3 (RGB), not {size[0]}: correct image = {list(size)}")
        if prod(size) > MAX_WIDTH:
            raise BazaarError(
                f"image = {list(size)} makes {prod(size)} features, more than {MAX_WIDTH}: make it smaller"
            )
        found = np.stack([pixels(blob, size) for blob in column.dropna()]).astype(np.float64)
        means, scales = (tuple(part.tolist()) for part in (found.mean((0, 2, 3)), found.std((0, 2, 3))))
        return cls.model_construct(name=name, size=size, means=means, scales=tuple(one or 1.0 for one in scales))

    @property
    def width(self) -> int:
        return self.size[0] * self.size[1] * self.size[2]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name} (pixel {place})" for place in range(self.width))

    def encode(self, column: Column, out: Features, where: str) -> None:
        if not holds_bytes(column) and not column.isna().all():
            raise BazaarError(
                f"{where}: column {self.name!r} holds no images and the hold-out has images: give a folder of images"
            )
        for row, blob in enumerate(column):
            if isinstance(blob, bytes):
                try:
                    self.fill(blob, out[row])
                except BazaarError as reason:
                    raise BazaarError(f"{where}: column {self.name!r}, data row {row + 1}: {reason}") from None

    def fill(self, blob: bytes, out: Features) -> None:
        """The features of one image."""
        means, scales = (np.array(part, dtype=np.float32)[:, None, None] for part in (self.means, self.scales))
        out[:] = ((pixels(blob, self.size) - means) / scales).ravel()


Encoder: TypeAlias = NumericColumn | CategoricalColumn | HashedColumn | DateColumn | TextColumn | ImageColumn


def standardised(values: Floats, mean: float, scale: float) -> Features:
    with np.errstate(over="ignore"):
        standard = (values - mean) / scale
    clipped: Features = np.clip(standard, -LIMIT, LIMIT).astype(np.float32)
    return clipped


def place_in(part: DatePart, days: Floats) -> Floats:
    """How far into its year, week (from Monday) or day each moment is: from 0 up to 1.

    >>> place_in("week", np.array([4.0])).tolist(), place_in("day", np.array([4.75])).tolist()
    ([0.0], [0.75])
    """
    whole = np.floor(days)
    if part == "day":
        return days - whole
    if part == "week":
        return np.asarray(np.mod(whole + 3, 7) / 7)
    dates = whole.astype("datetime64[D]")
    return np.asarray((dates - dates.astype("datetime64[Y]")).astype(np.float64) / 366)


def mark(out: Features, places: npt.NDArray[Any]) -> None:
    """A 1 at each row's place; none where the place is -1."""
    marked = places.astype(np.int64)
    rows = np.flatnonzero(marked >= 0)
    out[rows, marked[rows]] = 1.0
