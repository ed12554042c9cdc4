"""The hub's app: `/v1`, the pages, the events, and what guards all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool

from databazaar import __version__
from databazaar.service.database.connection import Database
from databazaar.service.http import api, health, pages, security_oidc
from databazaar.service.http.api import answering
from databazaar.service.http.context import Web
from databazaar.service.http.errors import handle_errors
from databazaar.service.http.logs import LoggedRequests
from databazaar.service.http.metrics import Counts
from databazaar.service.http.security import OwnRequests, SecureAnswers
from databazaar.service.http.security_bodies import BoundedBodies
from databazaar.service.http.security_limits import Limits
from databazaar.service.http.tailing import Tailers
from databazaar.service.hub import children
from databazaar.service.notary.commands import Notaries
from databazaar.service.settings import Settings

DESCRIPTION = """A market that organisations operate. GET reads, POST does and DELETE deletes; amounts are whole numbers
in minor units of the market's one currency. Send a token as `Authorization: Bearer …`, and an `Idempotency-Key` with
every POST and DELETE: sent again with the same body it gets the same answer, and nothing is done twice. A refusal is a
sentence with its remedy."""
HOUR = 3600.0


def create_app(
    settings: Settings, database: Database, *, supervise: bool = True, limits: Limits | None = None
) -> FastAPI:
    """With `supervise` this process also starts the jobs' runners and settles them."""
    web = Web(
        settings, database, limits or Limits(), Counts(), Tailers(settings, database), Notaries(settings, database)
    )
    app = FastAPI(
        title="databazaar",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation,
        lifespan=lambda _: _alive(web, supervise),
    )
    app.state.web = web
    handle_errors(app)
    api.include(app)
    app.include_router(health.router)
    if settings.oidc_issuer:
        app.state.oidc = security_oidc.Provider(settings)
        app.include_router(security_oidc.router)
    pages.include(app)
    # the last one added is asked first
    app.add_middleware(BoundedBodies, web=web)
    app.add_middleware(OwnRequests, settings=settings)
    app.add_middleware(LoggedRequests, web=web)
    app.add_middleware(SecureAnswers, settings=settings)
    return app


def _operation(route: APIRoute) -> str:
    return route.name


@asynccontextmanager
async def _alive(web: Web, supervise: bool) -> AsyncIterator[None]:
    """What goes on beside the requests."""
    await run_in_threadpool(children.get_ready)
    if supervise:
        from databazaar.service.hub.supervisor import Supervisor

        web.supervisor = Supervisor(web.settings, web.database)
        await run_in_threadpool(web.supervisor.start)
        web.notaries.start()
    tidying = asyncio.create_task(_tidy(web))
    try:
        yield
    finally:
        tidying.cancel()
        with suppress(asyncio.CancelledError):
            await tidying
        await web.tailers.stop()
        await run_in_threadpool(web.notaries.close)
        if web.supervisor is not None:
            await run_in_threadpool(web.supervisor.stop)


async def _tidy(web: Web) -> None:
    """Forgets old answers, now and every hour."""
    while True:
        await run_in_threadpool(_forget, web)
        await asyncio.sleep(HOUR)


def _forget(web: Web) -> None:
    with suppress(OperationalError), web.database.begin() as session:
        answering.forget_old(session)
