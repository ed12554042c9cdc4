"""What every request needs of its app: settings, database, limits, counts, and whoever follows jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from databazaar.service.database.connection import Database
from databazaar.service.http.metrics import Counts
from databazaar.service.http.security_limits import Limits
from databazaar.service.http.tailing import Tailers
from databazaar.service.notary.commands import Notaries
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from databazaar.service.hub.supervisor import Supervisor


@dataclass
class Web:
    """`supervisor` is None where this process shows the market and another one runs its jobs."""

    settings: Settings
    database: Database
    limits: Limits
    counts: Counts
    tailers: Tailers
    notaries: Notaries
    supervisor: Supervisor | None = None

    def wake(self) -> None:
        """Something has changed that the supervisor waits for."""
        if self.supervisor is not None:
            self.supervisor.wake()


def web_of(request: HTTPConnection) -> Web:
    web: Web = request.app.state.web
    return web


async def _web(request: HTTPConnection) -> Web:
    """Async, because FastAPI takes what is not through a thread, and that costs more than what is done here."""
    return web_of(request)


InWeb = Annotated[Web, Depends(_web)]
