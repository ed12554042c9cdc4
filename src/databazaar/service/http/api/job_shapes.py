"""Jobs as they are asked for and shown."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import Field

from databazaar.service.http.api.shapes import Asked, Name, Shown

Role = Literal["holdout", "train", "audit"]
Spec = Annotated[
    dict[str, Any],
    Field(description="The sections of market.toml, such as market, data and model, without providers and files."),
]
Files = Annotated[dict[Role, str], Field(description="Ids of uploaded files by their roles.")]
Offers = Annotated[list[str], Field(max_length=1000, description="Slugs or ids of offers.")]


class JobShown(Shown):
    """`state` goes from draft over submitted, agreed, funded, queued, running and settling to settled, refunded or
    failed. Amounts are in minor units; `paid`, `fee` and `refunded` are there once the job is over.
    `stopped_by` is consumer or operator where one of them has asked to stop it, and empty otherwise.
    `reason` is a sentence for people, and `reason_code` what programs compare."""

    id: str
    name: str
    mode: str
    state: str
    reason: str
    reason_code: str
    budget: int
    fee_basis_points: int
    escrow: int
    paid: int | None
    fee: int | None
    refunded: int | None
    run_head: str | None
    model_hash: str | None
    stopped_by: str
    attempts: int
    created_at: dt.datetime
    changed_at: dt.datetime


class JobDetail(JobShown):
    """With what was asked for."""

    organisation_id: str
    spec: dict[str, Any]
    files: dict[str, str]
    offers: list[str]


class EventShown(Shown):
    """What has happened to a job; `number` counts them."""

    number: int
    state: str
    detail: str
    code: str
    at: dt.datetime


class Events(Shown):
    items: list[EventShown]


class Rounds(Shown):
    """One object a round: round, spent, asked, budget, utility, loss, paid and flagged."""

    items: list[dict[str, Any]]


class QuoteShown(Shown):
    """`escrow` is taken from the consumer's cash: the budget and `most_fee`; what is not spent comes back. `wait` are
    seconds before it starts, null where nothing is known. `quote` is as `bazaar quote --json` gives it."""

    budget: int
    fee_basis_points: int
    most_fee: int
    escrow: int
    wait: float | None
    quote: dict[str, Any]


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
