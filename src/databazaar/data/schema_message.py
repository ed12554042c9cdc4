"""What may stand in a schema that came from another party: known fields, exact types, bounded sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TaskKind = Literal["classification", "regression"]
DatePart = Literal["days", "year", "week", "day"]
Reason = Literal["empty", "constant", "identifier"]
MAX_CATEGORIES = 1000
MAX_BUCKETS = 1000
MAX_WIDTH = 100_000
LARGEST_LABEL = 2**53

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Day = Annotated[float, Field(ge=-1e9, le=1e9)]
_Label = Annotated[int, Field(ge=-LARGEST_LABEL, le=LARGEST_LABEL)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _WireNumeric(_Strict):
    name: _Name
    mean: _Finite
    scale: _Scale
    median: _Finite
    missing: bool


class _WireCategorical(_Strict):
    name: _Name
    categories: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MAX_CATEGORIES)]
    other: bool
    missing: bool


class _WireHashed(_Strict):
    name: _Name
    buckets: Annotated[int, Field(ge=1, le=MAX_BUCKETS)]
    missing: bool


class _WireDate(_Strict):
    name: _Name
    parts: Annotated[tuple[DatePart, ...], Field(strict=False, min_length=1, max_length=4)]
    mean: _Day
    scale: _Scale
    median: _Day
    missing: bool
    day_first: bool


class _WireLeftOut(_Strict):
    name: _Name
    why: Reason


class SchemaMessage(_Strict):
    """What may stand in a schema from another party."""

    target: _Name
    task: TaskKind
    numeric: Annotated[tuple[_WireNumeric, ...], Field(strict=False, max_length=MAX_WIDTH)]
    categorical: Annotated[tuple[_WireCategorical, ...], Field(strict=False, max_length=10_000)]
    hashed: Annotated[tuple[_WireHashed, ...], Field(strict=False, max_length=10_000)]
    dates: Annotated[tuple[_WireDate, ...], Field(strict=False, max_length=10_000)]
    left_out: Annotated[tuple[_WireLeftOut, ...], Field(strict=False, max_length=MAX_WIDTH)]
    classes: Annotated[tuple[_Label | _Name, ...], Field(strict=False, max_length=MAX_CATEGORIES)]
    target_mean: _Finite
    target_scale: _Scale
