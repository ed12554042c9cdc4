"""Pages: who looks at one, in which market, the menu, how an answer is made, and the files that pages load."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from databazaar.money import Currency
from databazaar.reports.pages import environment
from databazaar.service import members
from databazaar.service.caller import Caller
from databazaar.service.database.tables import CashRecord, Contract, Job, Market, Organisation, Person
from databazaar.service.errors import DeniedError, MissingError
from databazaar.service.http.context import Call, InWeb, web_of
from databazaar.service.http.cookies import NOTICE, cookie_name, delete_cookie, set_cookie
from databazaar.service.http.forms import sentence_of
from databazaar.service.http.security import CSRF_FIELD, CallerOf, csrf_of
from databazaar.service.lifecycle import ContractState, JobState
from databazaar.service.settings import Settings

ANONYMOUS = Caller("", "", operates=False, consumes=False, provides=False, scopes=frozenset())
NO_MARKET = Market(name="databazaar", currency="", decimals=2, fee_basis_points=0)
TITLES = {
    403: "Not yours to do",
    404: "Nothing is here",
    413: "Too large",
    429: "Too many requests",
    503: "Come back soon",
}
GROUPS = ("Operating", "Buying", "Selling", "Your organisation")
Menu = dict[str, list[dict[str, Any]]]
"""The entries of each group: path, title, whether one is there, and how much waits."""
router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain", "md": "text/plain"}
FOR_A_YEAR, ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


@dataclass(frozen=True)
class MenuItem:
    """A page that its declaration puts into the menu: in which group, and at which place of it."""

    group: str
    title: str
    rank: int
    path: str
    role: str


@dataclass(frozen=True)
class PageContext(Call):
    """One request for a page, or of a form. `visitor` is None for one who has not signed in."""

    market: Market
    visitor: dict[str, Any] | None = None
    menu: Menu = field(default_factory=dict)

    @property
    def currency(self) -> Currency:
        return Currency(self.market.currency, self.market.decimals)

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
            market=self.market,
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
            set_cookie(response, self.settings, NOTICE, kept, 60)
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


def require(caller: Caller, role: str) -> None:
    """Refuses those who do not have the role, `member` being consumers and providers."""
    if role == "member" and not has_role(caller, role):
        raise DeniedError("only consumers and providers keep files here")
    if role in ("operator", "consumer", "provider"):
        getattr(caller, f"require_{role}")()


def has_role(caller: Caller, role: str) -> bool:
    roles = {"operator": caller.operates, "consumer": caller.consumes, "provider": caller.provides}
    return {**roles, "member": caller.consumes or caller.provides}.get(role, True)


def menu_for(session: Session, caller: Caller, path: str, items: list[MenuItem]) -> Menu:
    """The pages that are open to the caller's roles, by group."""
    shown = sorted((one for one in items if has_role(caller, one.role)), key=lambda one: one.rank)
    inside = (one.path for one in shown if one.path == path or path.startswith(f"{one.path}/"))
    here, waits = max(inside, key=len, default=""), _waiting(session, caller)
    menu: Menu = {group: [] for group in GROUPS if any(one.group == group for one in shown)}
    for one in shown:
        entry = {"path": one.path, "title": one.title, "here": one.path == here, "waits": waits.get(one.path, 0)}
        menu[one.group].append(entry)
    return menu


def _waiting(session: Session, caller: Caller) -> dict[str, int]:
    """What the visitor has yet to decide, by the page where it is decided."""
    found = {}
    if caller.operates:
        found["/operator/cash"] = select(func.count()).where(CashRecord.state == "requested")
    if caller.provides:
        found["/requests"] = select(func.count()).where(
            Contract.provider_id == caller.organisation_id, Contract.state == ContractState.REQUESTED
        )
    if caller.consumes:
        found["/jobs"] = select(func.count()).where(
            Job.organisation_id == caller.organisation_id, Job.state == JobState.AGREED
        )
    return {path: session.scalar(query) or 0 for path, query in found.items()}


def page_of(request: Request, web: InWeb, caller: CallerOf) -> PageContext:
    """Of one who has signed in; the others are led to where they can."""
    with web.database.read() as session:
        organisation = session.get_one(Organisation, caller.organisation_id)
        person = session.get(Person, caller.person_id) if caller.person_id else None
        visitor = {"caller": caller, "name": organisation.name, "email": person.email if person else ""}
        market, menu = members.market(session), menu_for(session, caller, request.url.path, web.menu)
    page = PageContext(web, request, caller, market, visitor, menu)
    request.state.page = page
    return page


def page_of_anybody(request: Request, web: InWeb) -> PageContext:
    with web.database.read() as session:
        return PageContext(web, request, ANONYMOUS, members.market(session))


InPage = Annotated[PageContext, Depends(page_of)]
"""For pages: `def jobs(page: InPage)`."""
Anonymous = Annotated[PageContext, Depends(page_of_anybody)]


async def _posted(request: Request) -> AsyncIterator[FormData]:
    async with request.form() as form:
        yield form


Posted = Annotated[FormData, Depends(_posted)]
"""What a form has sent. An endpoint names it after its page: then it is read once its sender is known."""


def error_page(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """What a browser is shown instead of a page. With 401 it is led to where it can sign in."""
    if status == HTTPStatus.UNAUTHORIZED:
        path = request.url.path if request.method == "GET" else "/"
        return RedirectResponse(f"/sign-in?next={quote(path)}", 303)
    # Nothing is asked of the database here: it may be what has failed.
    page = getattr(request.state, "page", None)
    page = page or PageContext(web_of(request), request, ANONYMOUS, NO_MARKET)
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    title = TITLES.get(status, "Something went wrong" if failed else "Not like this")
    response: Response = page.render("error", title, status, sentence=sentence_of(sentence))
    response.headers.update(headers)
    return response


@cache
def served() -> dict[str, bytes]:
    """Every static file by its path below /static."""
    ours = resources.files("databazaar.service.http").joinpath("static")
    files = {item.name: item for item in ours.iterdir() if item.is_file()}
    files |= {f"vendor/{item.name}": item for item in ours.joinpath("vendor").iterdir()}
    files["report.css"] = resources.files("databazaar.reports").joinpath("report.css")
    return {name: item.read_bytes() for name, item in files.items()}


@cache
def static(name: str) -> str:
    """The address of a file, which changes with its content: browsers keep it until then.

    >>> static("app.css").partition("?v=")[0]
    '/static/app.css'
    """
    return f"/static/{name}?v={hashlib.sha256(served()[name]).hexdigest()[:12]}"


@router.get("/static/{name:path}")
def static_file(name: str, v: str = "") -> Response:
    if name not in served():
        raise MissingError("there is no such file here")
    headers = {"Cache-Control": FOR_A_YEAR if static(name).endswith(f"?v={v}") else ASK_AGAIN}
    return Response(served()[name], media_type=TYPES[name.rpartition(".")[2]], headers=headers)
