"""A visit: who looks at a page, in which market, and how an answer is made for them."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from databazaar.money import Currency
from databazaar.reports.pages import environment
from databazaar.service import members
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Organisation, Person
from databazaar.service.errors import ServiceError
from databazaar.service.http.context import InWeb, Web
from databazaar.service.http.pages.menu import Group, menu_for
from databazaar.service.http.pages.static_files import static
from databazaar.service.http.security_callers import CSRF_FIELD, CallerOf, csrf_of
from databazaar.service.settings import Settings


@dataclass(frozen=True)
class Visitor:
    """Whoever has signed in; `name` is the organisation's."""

    caller: Caller
    name: str
    email: str


@dataclass(frozen=True)
class Visit:
    """One request for a page. `visitor` is None for one who has not signed in."""

    request: Request
    web: Web
    name_of_market: str
    currency: Currency
    fee_basis_points: int
    visitor: Visitor | None = None
    menu: tuple[Group, ...] = ()

    @property
    def caller(self) -> Caller:
        assert self.visitor is not None
        return self.visitor.caller

    @property
    def settings(self) -> Settings:
        return self.web.settings

    @contextmanager
    def begin(self) -> Iterator[Session]:
        with self.web.database.begin() as session:
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self.web.database.read() as session:
            yield session

    @property
    def by_htmx(self) -> bool:
        """Whether a part of a page that is open asks for itself again."""
        return "hx-request" in self.request.headers

    def render(self, template: str, title: str, status: int = 200, **given: Any) -> Response:
        notice = {} if self.by_htmx else _noticed(self.request, self.settings)
        csrf = csrf_of(self.request)
        page = (
            _environment()
            .get_template(f"service/{template}.html.jinja")
            .render(
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
        )
        response = HTMLResponse(page, status)
        if notice:
            response.delete_cookie(_cookie(self.settings), path="/", secure=self.settings.secure, httponly=True)
        return response

    def see(self, path: str, text: str = "", *, kind: str = "good", secret: str = "") -> Response:
        """Goes on to another page, and says there what was done. A secret is shown there once: it travels in a cookie
        that lives for a minute, and so reaches no address and no log."""
        response = RedirectResponse(path, 303)
        if text:
            notice = json.dumps({"text": text, "kind": kind, "secret": secret})
            response.set_cookie(
                _cookie(self.settings),
                base64.urlsafe_b64encode(notice.encode()).decode(),
                max_age=60,
                path="/",
                secure=self.settings.secure,
                httponly=True,
                samesite="strict",
            )
        return response

    @contextmanager
    def refusals(self) -> Iterator[list[str]]:
        """For buttons: what a deed refuses because of how things stand is told on the next page."""
        told: list[str] = []
        try:
            yield told
        except ServiceError as error:
            if error.status not in (409, 422):
                raise
            told.append(str(error))


def _cookie(settings: Settings) -> str:
    return "__Host-notice" if settings.secure else "notice"


def _noticed(request: Request, settings: Settings) -> dict[str, str]:
    """What the page before has left to say. A cookie may hold anything: what is no notice is none."""
    try:
        notice = json.loads(base64.urlsafe_b64decode(request.cookies.get(_cookie(settings), "")))
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


def _environment() -> Any:
    made = environment("service", "databazaar.service.http")
    made.globals.update(static=static, moment=moment, day=day)
    return made


def visit_of(request: Request, web: InWeb, caller: CallerOf) -> Visit:
    """Of one who has signed in; the others are led to where they can."""
    with web.database.read() as session:
        market = members.market(session)
        organisation = session.get_one(Organisation, caller.organisation_id)
        person = session.get(Person, caller.person_id) if caller.person_id else None
        menu = menu_for(session, caller, request.url.path)
        visit = Visit(
            request,
            web,
            market.name,
            Currency(market.currency, market.decimals),
            market.fee_basis_points,
            Visitor(caller, organisation.name, person.email if person else ""),
            menu,
        )
    request.state.visit = visit
    return visit


def visit_of_anybody(request: Request, web: InWeb) -> Visit:
    with web.database.read() as session:
        market = members.market(session)
        return Visit(request, web, market.name, Currency(market.currency, market.decimals), market.fee_basis_points)


Visiting = Annotated[Visit, Depends(visit_of)]
"""For pages: `def jobs(visit: Visiting)`."""
Stranger = Annotated[Visit, Depends(visit_of_anybody)]


async def posted_by(request: Request, _: CallerOf) -> AsyncIterator[FormData]:
    async with request.form() as form:
        yield form


async def posted_by_anybody(request: Request) -> AsyncIterator[FormData]:
    async with request.form() as form:
        yield form


Posted = Annotated[FormData, Depends(posted_by)]
"""What a form has sent; known after its sender is."""
PostedByAnybody = Annotated[FormData, Depends(posted_by_anybody)]
