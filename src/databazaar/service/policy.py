"""What a provider asks for an offer, and what it allows. A contract keeps a copy: later changes are for later jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from databazaar.learning.asked_rows import LEAST_ROWS
from databazaar.learning.kinds import MODEL_KINDS

_Count = Annotated[int, Field(ge=1, le=10**12)]
_Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class Policy(BaseModel):
    """`price` is for one access, in minor units. `consumers` are slugs of organisations, `models` kinds, and `modes` of
    jobs hosted (the hub's arbiter gets the updates) and own (the consumer's does); None allows all. `most_accesses` is
    for a job, `most_rows` the rows that pass through the model in one ask, of which there are at
    least `LEAST_ROWS`. `epsilon` is in all and
    `epsilon_per_consumer` for each: they are kept by a site, from which no answer leaves without noise then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    price: _Count
    consumers: tuple[str, ...] | None = None
    models: tuple[Literal[MODEL_KINDS], ...] | None = None  # type: ignore[valid-type]
    modes: Annotated[tuple[Literal["hosted", "own"], ...], Field(min_length=1)] | None = None
    most_accesses: _Count | None = None
    most_rows: Annotated[int, Field(ge=LEAST_ROWS, le=10**12)] | None = None
    epsilon: _Epsilon | None = None
    epsilon_per_consumer: _Epsilon | None = None
    approval: Literal["automatic", "by hand"] = "by hand"
    days_to_decide: Annotated[int, Field(ge=1, le=365)] = 14
