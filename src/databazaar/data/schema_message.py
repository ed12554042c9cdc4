"""The fields of a schema, which may come from another party: exact types and bounded sizes. Read without pandas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from databazaar.models import GRAM_BUCKETS

TaskKind = Literal["classification", "regression"]
DatePart = Literal["days", "year", "week", "day"]
Reason = Literal["empty", "constant", "identifier"]
MAX_CATEGORIES = 1000
MAX_BUCKETS = 1000
MAX_SLOTS, MAX_COMMON = 1024, 64
"""Of a text: grams of a row, and grams that are common."""
MAX_SIDE = 512
"""Of an image."""
MOST_COLUMNS = 10_000
"""Of one kind but numbers."""
MAX_WIDTH = 100_000
LARGEST_LABEL = 2**53

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Day = Annotated[float, Field(ge=-1e9, le=1e9)]
_Label = Annotated[int, Field(ge=-LARGEST_LABEL, le=LARGEST_LABEL)]


class Strict(BaseModel):
    """Exact types, and no field but those that are named."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class NumericFields(Strict):
    name: _Name
    mean: _Finite
    scale: _Scale
    median: _Finite
    missing: bool


class CategoricalFields(Strict):
    name: _Name
    categories: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MAX_CATEGORIES)]
    other: bool
    missing: bool


class HashedFields(Strict):
    name: _Name
    buckets: Annotated[int, Field(ge=1, le=MAX_BUCKETS)]
    missing: bool


class DateFields(Strict):
    name: _Name
    parts: Annotated[tuple[DatePart, ...], Field(strict=False, min_length=1, max_length=4)]
    mean: _Day
    scale: _Scale
    median: _Day
    missing: bool
    day_first: bool


class TextFields(Strict):
    name: _Name
    buckets: Annotated[int, Field(ge=1, le=MAX_BUCKETS)]
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)]
    common: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=GRAM_BUCKETS)], ...], Field(strict=False, max_length=MAX_COMMON)
    ]
    missing: bool


class ImageFields(Strict):
    name: _Name
    size: Annotated[tuple[Literal[1, 3], _Side, _Side], Field(strict=False)]
    """Channels, height and width."""
    means: Annotated[tuple[_Finite, ...], Field(strict=False, min_length=1, max_length=3)]
    scales: Annotated[tuple[_Scale, ...], Field(strict=False, min_length=1, max_length=3)]


class LeftOut(Strict):
    """A column that tells nothing, or nothing that carries over to other rows: empty, constant, or an identifier."""

    name: _Name
    why: Reason


class SchemaMessage(Strict):
    """What may stand in a schema from another party."""

    target: _Name
    task: TaskKind
    numeric: Annotated[tuple[NumericFields, ...], Field(strict=False, max_length=MAX_WIDTH)]
    categorical: Annotated[tuple[CategoricalFields, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    hashed: Annotated[tuple[HashedFields, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    dates: Annotated[tuple[DateFields, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    texts: Annotated[tuple[TextFields, ...], Field(strict=False, max_length=MOST_COLUMNS)] = ()
    images: Annotated[tuple[ImageFields, ...], Field(strict=False, max_length=MOST_COLUMNS)] = ()
    left_out: Annotated[tuple[LeftOut, ...], Field(strict=False, max_length=MAX_WIDTH)]
    classes: Annotated[tuple[_Label | _Name, ...], Field(strict=False, max_length=MAX_CATEGORIES)]
    target_mean: _Finite
    target_scale: _Scale

    @model_serializer(mode="wrap")
    def _as_before(self, told: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A schema without texts or images says what it said before there were any: providers have accepted it by its
        hash."""
        message: dict[str, Any] = told(self)
        return {name: value for name, value in message.items() if value or name not in ("texts", "images")}
