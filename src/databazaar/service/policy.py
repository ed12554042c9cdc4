"""What a provider asks for an offer, and what it allows. A contract keeps a copy: later changes are for later jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from databazaar.config.template import kinds_of
from databazaar.learners.protocol import LEARNERS
from databazaar.learning.asked_rows import LEAST_ROWS
from databazaar.models import MODELS
from databazaar.service.errors import InvalidError
from databazaar.service.names import slug_of

MOST_CONSUMERS = 1000
MODEL_KINDS, LEARNER_KINDS = tuple(kinds_of(MODELS)), tuple(kinds_of(LEARNERS))

_Count = Annotated[int, Field(ge=1, le=10**12)]
_Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class Policy(BaseModel):
    """`price` is for one access, in minor units. `consumers` are slugs of organisations, `models` and `learners` kinds,
    and `modes` of jobs hosted (the hub's arbiter gets the updates) and own (the consumer's does); None allows all.
    `most_accesses` is for a job, `most_rows` the rows that pass through the model in one ask, or train it, of which
    there are at least `LEAST_ROWS`.
    `epsilon` is in all and `epsilon_per_consumer` for each: they are kept by a site, from which no answer leaves
    without noise then."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    price: _Count
    consumers: tuple[str, ...] | None = None
    models: tuple[Literal[MODEL_KINDS], ...] | None = None  # type: ignore[valid-type]
    learners: tuple[Literal[LEARNER_KINDS], ...] | None = None  # type: ignore[valid-type]
    modes: Annotated[tuple[Literal["hosted", "own"], ...], Field(min_length=1)] | None = None
    most_accesses: _Count | None = None
    most_rows: Annotated[int, Field(ge=LEAST_ROWS, le=10**12)] | None = None
    epsilon: _Epsilon | None = None
    epsilon_per_consumer: _Epsilon | None = None
    approval: Literal["automatic", "by hand"] = "by hand"
    days_to_decide: Annotated[int, Field(ge=1, le=365)] = 14

    @field_validator("consumers")
    @classmethod
    def _are_slugs(cls, consumers: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if len(consumers or ()) > MOST_CONSUMERS:
            said = f"policy: consumers names more than {MOST_CONSUMERS:,}: leave it out to allow all"
            raise InvalidError(said, place="consumers")
        for place, consumer in enumerate(consumers or ()):
            slug_of(consumer, f"policy: consumers[{place}]", 40, "consumers")
        return consumers


def read_policy(given: Mapping[str, Any]) -> Policy:
    """The policy that somebody has written, or one sentence that says what is wrong with it."""
    try:
        return Policy.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        setting = ".".join(str(part) for part in first["loc"]) or "policy"
        field = str(first["loc"][0]) if first["loc"] else ""
        raise InvalidError(f"policy: {setting[:60]}: {first['msg']}: correct it", place=field) from None
