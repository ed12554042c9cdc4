"""`/v1`: everything that people do at the hub, for programs. Each module has a router and calls the service's deeds."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from databazaar.service.http import events
from databazaar.service.http.api import (
    cash,
    contracts,
    downloads,
    files,
    jobs,
    journal,
    members,
    offers,
    own_arbiter,
    queues,
    webhooks,
)
from databazaar.service.http.api.shapes import Refusal

REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refusal, "description": "Nobody known asks."},
    403: {"model": Refusal, "description": "The caller may not do this."},
    404: {"model": Refusal, "description": "There is no such thing, or it is another organisation's."},
    409: {"model": Refusal, "description": "It cannot be done in the state that it is in."},
    422: {"model": Refusal, "description": "What was sent is not what is asked for."},
    429: {"model": Refusal, "description": "Too many requests."},
}


MODULES = (members, files, offers, queues, contracts, jobs, own_arbiter, events, downloads, cash, journal, webhooks)


def include(app: FastAPI) -> None:
    """Adds all of /v1 to the app."""
    for module in MODULES:
        app.include_router(module.router, responses=REFUSALS)
