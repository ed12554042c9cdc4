"""The hub in the browser: pages that a server makes, which need no script but are better with one."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from databazaar.money import Currency


def include(app: FastAPI) -> None:
    """Adds the pages' routers and their static files to the app."""
    from databazaar.service.http.pages import (
        account,
        earnings,
        files,
        home,
        job_pages,
        market,
        money,
        offers,
        operator,
        operator_money,
        requests,
        signing,
        static_files,
        webhooks,
    )

    for part in (
        static_files,
        signing,
        home,
        account,
        operator,
        operator_money,
        market,
        job_pages,
        money,
        offers,
        requests,
        earnings,
        files,
        webhooks,
    ):
        app.include_router(part.router)


TITLES = {
    403: "Not yours to do",
    404: "Nothing is here",
    413: "Too large",
    429: "Too many requests",
    503: "Come back soon",
}
FAILED, NOT_SO = "Something went wrong", "Not like this"


def error_page(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """What a browser is shown instead of a page. With 401 it is led to where it can sign in."""
    from databazaar.service.http.context import web_of
    from databazaar.service.http.pages.forms import sentence_of
    from databazaar.service.http.pages.visits import Visit

    if status == HTTPStatus.UNAUTHORIZED:
        path = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(path)}", 303)
    # Nothing is asked of the database here: it may be what has failed.
    visit = getattr(request.state, "visit", None) or Visit(request, web_of(request), "databazaar", Currency(), 0)
    title = TITLES.get(status, FAILED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else NOT_SO)
    page: Response = visit.render("error", title, status, sentence=sentence_of(sentence))
    page.headers.update(headers)
    return page
