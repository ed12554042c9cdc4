"""`/v1`: everything that people do at the hub, for programs. Each module has a router and calls the service's deeds."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

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


def routers() -> APIRouter:
    """All of /v1."""
    router = APIRouter(prefix="/v1", responses=REFUSALS)
    for module in (members, files, offers, queues, contracts, jobs, events, downloads, cash, journal, webhooks):
        router.include_router(module.router)
    return router
