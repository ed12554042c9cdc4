"""What may stand in a schema that came from another party: known fields, exact types, bounded sizes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TaskKind = Literal["classification", "regression"]
MAX_CATEGORIES = 1000
LARGEST_LABEL = 2**53

_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _WireNumeric(_Strict):
    name: _Name
    mean: _Finite
    scale: _Scale


class _WireCategorical(_Strict):
    name: _Name
    categories: Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=MAX_CATEGORIES)]


class SchemaMessage(_Strict):
    """What may stand in a schema from another party."""

    target: _Name
    task: TaskKind
    numeric: Annotated[tuple[_WireNumeric, ...], Field(strict=False, max_length=100_000)]
    categorical: Annotated[tuple[_WireCategorical, ...], Field(strict=False, max_length=10_000)]
    classes: Annotated[
        tuple[Annotated[int, Field(ge=-LARGEST_LABEL, le=LARGEST_LABEL)], ...],
        Field(strict=False, max_length=MAX_CATEGORIES),
    ]
    target_mean: _Finite
    target_scale: _Scale
    features_listed: bool
