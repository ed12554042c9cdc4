"""Jobs as they are asked for, and lists about one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from databazaar.client import shapes
from databazaar.service.http.api.shapes import Asked, Name

Role = Literal["holdout", "train", "audit"]
Spec = Annotated[
    dict[str, Any],
    Field(description="The sections of market.toml, such as market, data and model, without providers and files."),
]
Files = Annotated[dict[Role, str], Field(description="Ids of uploaded files by their roles.")]
Offers = Annotated[list[str], Field(max_length=1000, description="Slugs or ids of offers.")]


class Events(BaseModel):
    items: list[shapes.Event]


class Rounds(BaseModel):
    """One object a round: round, spent, asked, budget, utility, loss, paid and flagged."""

    items: list[dict[str, Any]]


class DraftJob(Asked):
    """With mode `own` the consumer runs its arbiter itself, and uploads no files."""

    name: Name
    spec: Spec
    files: Files = Field(default_factory=dict)
    offers: Offers
    mode: Literal["hosted", "own"] = "hosted"


class ChangeJob(Asked):
    """What is not given stays."""

    name: Name | None = None
    spec: Spec | None = None
    files: Files | None = None
    offers: Offers | None = None
