"""What every request has: the app's settings, database, limits and counts, and who asks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session
from starlette.datastructures import FormData
from starlette.requests import HTTPConnection

from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.notary.commands import Notaries
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from databazaar.service.http.pages import MenuItem
    from databazaar.service.http.resources.health import Counts
    from databazaar.service.http.resources.live import Broadcaster
    from databazaar.service.http.security_limits import Limits
    from databazaar.service.hub.supervisor import Supervisor


@dataclass
class Web:
    """`supervisor` is None where this process shows the market and another one runs its jobs."""

    settings: Settings
    database: Database
    limits: Limits
    counts: Counts
    broadcaster: Broadcaster
    notaries: Notaries
    menu: list[MenuItem] = field(default_factory=list)
    supervisor: Supervisor | None = None

    def wake(self) -> None:
        """Something may have changed that the supervisor waits for."""
        if self.supervisor is not None:
            self.supervisor.wake()


@dataclass(frozen=True)
class Call:
    """One request: what commands are given, be it from a program or from a form. `after` is done once the command's
    transaction is committed. `posted` holds the parts of a form or an upload."""

    web: Web
    request: Request
    caller: Caller
    after: list[Callable[[], object]] = field(default_factory=list, kw_only=True)
    posted: FormData = field(default_factory=FormData, kw_only=True)

    @property
    def settings(self) -> Settings:
        return self.web.settings

    def committed(self) -> None:
        """Does what was put off until a command's transaction is committed; the supervisor looks for new work."""
        for one in self.after:
            one()
        self.web.wake()

    def begin(self) -> AbstractContextManager[Session]:
        return self.web.database.begin()

    def read(self) -> AbstractContextManager[Session]:
        return self.web.database.read()


def web_of(request: HTTPConnection) -> Web:
    web: Web = request.app.state.web
    return web


async def _web(request: HTTPConnection) -> Web:
    """Async, because FastAPI takes what is not through a thread, and that costs more than what is done here."""
    return web_of(request)


InWeb = Annotated[Web, Depends(_web)]
