"""The hub's app: `/v1`, the pages, the events, and what guards all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from databazaar import __version__
from databazaar.service.database.connection import Database
from databazaar.service.http import pages
from databazaar.service.http.context import Web
from databazaar.service.http.errors import handle_errors
from databazaar.service.http.logs import LoggedRequests
from databazaar.service.http.metrics import Counts
from databazaar.service.http.security import OwnRequests, SecureAnswers
from databazaar.service.http.security_bodies import BoundedBodies
from databazaar.service.http.security_limits import Limits
from databazaar.service.settings import Settings


def create_app(
    settings: Settings, database: Database, *, supervise: bool = True, limits: Limits | None = None
) -> FastAPI:
    """With `supervise` this process also starts the jobs' runners and settles them."""
    web = Web(settings, database, limits or Limits(), Counts())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if supervise:
            from databazaar.service.hub.supervisor import Supervisor

            web.supervisor = Supervisor(settings, database)
            await run_in_threadpool(web.supervisor.start)
        try:
            yield
        finally:
            if web.supervisor is not None:
                await run_in_threadpool(web.supervisor.stop)

    app = FastAPI(title="databazaar", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.web = web
    handle_errors(app)
    pages.include(app)
    # the last one added is asked first
    app.add_middleware(BoundedBodies, settings=settings)
    app.add_middleware(OwnRequests, settings=settings)
    app.add_middleware(LoggedRequests, web=web)
    app.add_middleware(SecureAnswers, settings=settings)
    return app
