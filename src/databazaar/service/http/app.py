"""The hub's app: `/v1`, the pages, the events, and what guards all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from databazaar import __version__
from databazaar.service.database.connection import Database
from databazaar.service.http import pages, security_oidc
from databazaar.service.http.context import Web
from databazaar.service.http.errors import handle_errors
from databazaar.service.http.logs import LoggedRequests
from databazaar.service.http.resources import all_routes
from databazaar.service.http.resources.health import Counts
from databazaar.service.http.resources.live import Broadcaster
from databazaar.service.http.security_limits import BoundedBodies, Limits
from databazaar.service.hub import children
from databazaar.service.notary.commands import Notaries
from databazaar.service.settings import Settings

DESCRIPTION = """A market that organisations operate. GET reads, POST does and DELETE deletes; amounts are whole numbers
in minor units of the market's one currency. Send a token as `Authorization: Bearer …`, and an `Idempotency-Key` with
every POST and DELETE: sent again with the same body it gets the same answer, and nothing is done twice. A refusal is a
sentence with its remedy."""


def create_app(
    settings: Settings, database: Database, *, supervise: bool = True, limits: Limits | None = None
) -> FastAPI:
    """With `supervise` this process also starts the jobs' runners and settles them."""
    broadcaster, notaries = Broadcaster(settings, database), Notaries(settings, database)
    web = Web(settings, database, limits or Limits(), Counts(), broadcaster, notaries)
    app = FastAPI(
        title="databazaar",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lambda _: _alive(web, supervise),
    )
    app.state.web = web
    handle_errors(app)
    if settings.oidc_issuer:
        app.state.oidc = security_oidc.Provider(settings)
        app.include_router(security_oidc.router)
    app.include_router(pages.router)
    for routes in all_routes():
        app.include_router(routes.api)
        app.include_router(routes.pages)
        web.menu += routes.menu
    # the last one added is asked first
    app.add_middleware(BoundedBodies, web=web)
    app.add_middleware(LoggedRequests, web=web)
    return app


@asynccontextmanager
async def _alive(web: Web, supervise: bool) -> AsyncIterator[None]:
    await run_in_threadpool(children.get_ready)
    if supervise:
        from databazaar.service.hub.supervisor import Supervisor

        web.supervisor = Supervisor(web.settings, web.database)
        await run_in_threadpool(web.supervisor.start)
        web.notaries.start()
    try:
        yield
    finally:
        await web.broadcaster.stop()
        await run_in_threadpool(web.notaries.close)
        if web.supervisor is not None:
            await run_in_threadpool(web.supervisor.stop)
