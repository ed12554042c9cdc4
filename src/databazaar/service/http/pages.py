"""The context of a page: who looks at it, in which market, and how an answer is made for them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from starlette.datastructures import FormData

from databazaar.money import Currency
from databazaar.reports.pages import environment
from databazaar.service import members
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Organisation, Person
from databazaar.service.http.context import Call, InWeb, web_of
from databazaar.service.http.cookies import NOTICE, cookie_name, delete_cookie, set_cookie
from databazaar.service.http.forms import sentence_of
from databazaar.service.http.menu import MenuGroup, menu_for
from databazaar.service.http.security_callers import CSRF_FIELD, CallerOf, csrf_of
from databazaar.service.http.static_files import static
from databazaar.service.settings import Settings

ANONYMOUS = Caller("", "", operates=False, consumes=False, provides=False, scopes=frozenset())
TITLES = {
    403: "Not yours to do",
    404: "Nothing is here",
    413: "Too large",
    429: "Too many requests",
    503: "Come back soon",
}
FAILED, NOT_SO = "Something went wrong", "Not like this"


@dataclass(frozen=True)
class Visitor:
    """A person who has signed in; `name` is the organisation's."""

    caller: Caller
    name: str
    email: str


@dataclass(frozen=True)
class PageContext(Call):
    """One request for a page, or of a form. `visitor` is None for one who has not signed in."""

    name_of_market: str
    currency: Currency
    fee_basis_points: int
    visitor: Visitor | None = None
    menu: tuple[MenuGroup, ...] = ()

    @property
    def by_htmx(self) -> bool:
        """Whether a part of a page that is open asks for itself again."""
        return "hx-request" in self.request.headers

    def render(self, template: str, title: str, status: int = 200, **given: Any) -> Response:
        notice = {} if self.by_htmx else _noticed(self.request, self.settings)
        csrf = csrf_of(self.request)
        page = templates().get_template(f"service/{template}.html.jinja")
        text = page.render(
            title=title,
            brand=self.name_of_market,
            market={"name": self.name_of_market, "fee_basis_points": self.fee_basis_points},
            currency=self.currency,
            visitor=self.visitor,
            menu=self.menu,
            notices=[notice] if notice else [],
            csrf_field=lambda: Markup('<input type="hidden" name="{}" value="{}">').format(CSRF_FIELD, csrf),
            **given,
        )
        response = HTMLResponse(text, status)
        if notice:
            delete_cookie(response, self.settings, NOTICE)
        return response

    def see(self, path: str, text: str = "", *, kind: str = "good", secret: str = "") -> Response:
        """Goes on to another page, and says there what was done. A secret is shown there once: it travels in a cookie
        that lives for a minute, and so reaches no address and no log."""
        response = RedirectResponse(path, 303)
        if text:
            notice = json.dumps({"text": text, "kind": kind, "secret": secret})
            kept = base64.urlsafe_b64encode(notice.encode()).decode()
            set_cookie(response, self.settings, NOTICE, kept, 60, "strict")
        return response


def _noticed(request: Request, settings: Settings) -> dict[str, str]:
    """What the page before has left to say. A cookie may hold anything: what is no notice is none."""
    try:
        notice = json.loads(base64.urlsafe_b64decode(request.cookies.get(cookie_name(settings, NOTICE), "")))
        words = {name: str(notice[name]) for name in ("text", "kind", "secret")}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return words if words["kind"] in ("good", "bad", "info") else {}


def moment(at: dt.datetime) -> Markup:
    """
    >>> moment(dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC))
    Markup('<time datetime="2026-01-02T03:04:05+00:00">2026-01-02 03:04 UTC</time>')
    """
    return Markup('<time datetime="{}">{} UTC</time>').format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M}")


def day(at: dt.datetime) -> Markup:
    return Markup('<time datetime="{}">{}</time>').format(at.date().isoformat(), at.date().isoformat())


def templates() -> Any:
    made = environment("service", "databazaar.service.http")
    made.globals.update(static=static, moment=moment, day=day)
    return made


def page_of(request: Request, web: InWeb, caller: CallerOf) -> PageContext:
    """Of one who has signed in; the others are led to where they can."""
    with web.database.read() as session:
        organisation = session.get_one(Organisation, caller.organisation_id)
        person = session.get(Person, caller.person_id) if caller.person_id else None
        visitor = Visitor(caller, organisation.name, person.email if person else "")
        market, menu = members.market(session), menu_for(session, caller, request.url.path, web.menu)
        currency = Currency(market.currency, market.decimals)
    page = PageContext(web, request, caller, market.name, currency, market.fee_basis_points, visitor, menu)
    request.state.page = page
    return page


def page_of_anybody(request: Request, web: InWeb) -> PageContext:
    with web.database.read() as session:
        market = members.market(session)
        currency = Currency(market.currency, market.decimals)
    return PageContext(web, request, ANONYMOUS, market.name, currency, market.fee_basis_points)


InPage = Annotated[PageContext, Depends(page_of)]
"""For pages: `def jobs(page: InPage)`."""
Anonymous = Annotated[PageContext, Depends(page_of_anybody)]


async def _posted(request: Request, _: CallerOf) -> AsyncIterator[FormData]:
    async with request.form() as form:
        yield form


async def _posted_by_anybody(request: Request) -> AsyncIterator[FormData]:
    async with request.form() as form:
        yield form


Posted = Annotated[FormData, Depends(_posted)]
"""What a form has sent; known after its sender is."""
PostedByAnybody = Annotated[FormData, Depends(_posted_by_anybody)]


def error_page(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """What a browser is shown instead of a page. With 401 it is led to where it can sign in."""
    if status == HTTPStatus.UNAUTHORIZED:
        path = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(path)}", 303)
    # Nothing is asked of the database here: it may be what has failed.
    page = getattr(request.state, "page", None)
    page = page or PageContext(web_of(request), request, ANONYMOUS, "databazaar", Currency(), 0)
    title = TITLES.get(status, FAILED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else NOT_SO)
    response: Response = page.render("error", title, status, sentence=sentence_of(sentence))
    response.headers.update(headers)
    return response
