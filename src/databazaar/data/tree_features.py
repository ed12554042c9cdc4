"""A table as boosted trees take it: one feature a column, in the column's own units.

Numbers and dates stay as they are, for a tree only asks whether a number is above another; categories are codes; what
is missing is NaN. A text is the number of its words and a 0 or 1 for each gram that is common; where the model has a
linear part too, the buckets of its grams follow at the end of the row (data/words.py). All that has to be known of a
column is in the schema, which networks share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from databazaar.data.columns import Column, Texts, as_days, as_numbers, as_texts
from databazaar.data.encoders import (
    CategoricalColumn,
    DateColumn,
    Encoder,
    HashedColumn,
    ImageColumn,
    NumericColumn,
    TextColumn,
    place_in,
)
from databazaar.data.schema import Array, FirstFault, Schema, TableFaults
from databazaar.data.words import bucket_of
from databazaar.errors import BazaarError
from databazaar.models import OF_COLUMNS, Auto, Columns, Trees

Features: TypeAlias = npt.NDArray[np.float32]
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class TreeFeatures:
    """The encoding of a schema for trees; `with_grams`, for a linear model beside them.

    >>> frame = pd.DataFrame({"amount": [1.5, None], "channel": ["web", "shop"], "fraud": ["no", "yes"]})
    >>> features = TreeFeatures(Schema.fit(frame, target="fraud", task="classification"))
    >>> features.names, features.categorical, features.encode_features(frame, "holdout.csv").tolist()
    (('amount', 'channel'), (1,), [[1.5, 1.0], [nan, 0.0]])
    """

    schema: Schema
    with_grams: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for encoder in self.schema.encoders for name in _names(encoder))

    @property
    def grams(self) -> int:
        """How many features at the end of a row are buckets of grams."""
        return sum(text.slots for text in self.schema.texts) if self.with_grams else 0

    @property
    def width(self) -> int:
        return len(self.names) + self.grams

    @property
    def categorical(self) -> tuple[int, ...]:
        """The places of features that are codes of categories."""
        kinds = [encoder for encoder in self.schema.encoders for _ in _names(encoder)]
        return tuple(place for place, kind in enumerate(kinds) if isinstance(kind, CategoricalColumn | HashedColumn))

    def placed(self, columns: Iterable[str | int], setting: str) -> tuple[int, ...]:
        """The places of columns of numbers."""
        names, known = self.names, {encoder.name: encoder for encoder in self.schema.encoders}
        places = []
        for column in columns:
            if not isinstance(known.get(str(column)), NumericColumn):
                kind = "no column of numbers" if column in known else "no feature column"
                raise BazaarError(f"{setting} names {column!r}, which is {kind}: take it out", place=setting)
            places.append(names.index(str(column)))
        return tuple(places)

    def encode(self, frame: pd.DataFrame, where: str, faults: TableFaults | None = None) -> tuple[Features, Array]:
        """x as float32 [rows, width], and y as `Schema.encode` has it."""
        faults = FirstFault() if faults is None else faults
        return self.encode_features(frame, where, faults), self.schema.encode_labels(frame, where, faults)

    def encode_features(self, frame: pd.DataFrame, where: str, faults: TableFaults | None = None) -> Features:
        """x alone, of a table that needs no target."""
        faults = FirstFault() if faults is None else faults
        self.schema.refuse_missing_columns(frame, where, faults)
        x = np.full((len(frame), self.width), np.nan, dtype=np.float32)
        place, slot = 0, len(self.names)
        for encoder in self.schema.encoders:
            width, slots = len(_names(encoder)), encoder.slots if isinstance(encoder, TextColumn) else 0
            if encoder.name in frame.columns:
                features, grams = x[:, place : place + width], x[:, slot : slot + slots]
                faults.caught(partial(_fill, encoder, frame[encoder.name], features, grams, where))
            place, slot = place + width, slot + slots
        return x


Encoding: TypeAlias = Schema | TreeFeatures
"""How a table becomes a model's inputs."""


def encoding_of(schema: Schema, model: str) -> Encoding:
    """How a kind of model takes the tables of a schema."""
    return TreeFeatures(schema, model == Auto.kind) if model in OF_COLUMNS else schema


def with_places(model: Columns, schema: Schema) -> Columns:
    """A model whose settings name columns, with the places of features instead."""
    features = TreeFeatures(schema, with_grams=isinstance(model, Auto))
    if not isinstance(model, Trees):
        return Auto(features.categorical, features.grams)
    rising, falling = (features.placed(getattr(model, name), f"model.{name}") for name in ("rising", "falling"))
    return replace(model, rising=rising, falling=falling, categorical=features.categorical)


def _names(encoder: Encoder) -> tuple[str, ...]:
    if isinstance(encoder, DateColumn):
        return tuple(f"{encoder.name} ({'days' if part == 'days' else f'time of {part}'})" for part in encoder.parts)
    if isinstance(encoder, TextColumn):
        return (f"{encoder.name} (words)", *(f"{encoder.name} (gram {bucket})" for bucket in encoder.common))
    return (encoder.name,)


def _fill(encoder: Encoder, column: Column, out: Features, grams: Features, where: str) -> None:
    if isinstance(encoder, ImageColumn):
        raise BazaarError(f'{where}: trees take no images, as column {encoder.name!r} has: use model.kind = "convnet"')
    if isinstance(encoder, TextColumn):
        encoder.fill_tree(column, out, grams, where)
    elif isinstance(encoder, DateColumn):
        days = as_days(column, where, encoder.day_first)
        for place, part in enumerate(encoder.parts):
            out[:, place] = days if part == "days" else _cycle(part, days)
    elif isinstance(encoder, CategoricalColumn):
        places = {category: float(place) for place, category in enumerate(encoder.categories)}
        others = float(len(places)) if encoder.other else np.nan
        out[:, 0] = _coded(encoder.texts(column, where), lambda text: places.get(text, others))
    elif isinstance(encoder, HashedColumn):
        out[:, 0] = _coded(as_texts(column, where), lambda text: float(bucket_of(text, encoder.buckets)))
    else:
        numbers = as_numbers(column, where, "the hold-out has numbers")
        out[:, 0] = np.clip(numbers, -LARGEST, LARGEST)


def _cycle(part: Any, days: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    known = ~np.isnan(days)
    places = np.full(len(days), np.nan)
    places[known] = place_in(part, days[known])
    return places


def _coded(found: Texts, code: Callable[[str], float]) -> npt.NDArray[np.float64]:
    codes = np.array([code(text) for text in found.texts], dtype=np.float64)
    return np.asarray(found.spread(codes, np.nan), dtype=np.float64)
