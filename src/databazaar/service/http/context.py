"""What every request needs of its app: settings, database, limits, counts, and whoever follows jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from databazaar.service.database.connection import Database
from databazaar.service.http.metrics import Counts
from databazaar.service.http.security_limits import Limits
from databazaar.service.http.tailing import Tailers
from databazaar.service.settings import Settings


@dataclass
class Web:
    """`supervisor` is None where this process shows the market and another one runs its jobs."""

    settings: Settings
    database: Database
    limits: Limits
    counts: Counts
    tailers: Tailers
    supervisor: Any = None


def web_of(request: HTTPConnection) -> Web:
    web: Web = request.app.state.web
    return web


InWeb = Annotated[Web, Depends(web_of)]
