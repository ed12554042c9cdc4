"""Where one comes in and goes out, by password, or once by a link; the overview of what waits for the visitor; and the
page that says who sees what."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from databazaar.service import contracts, credentials, jobs, offers
from databazaar.service.database.tables import Person
from databazaar.service.errors import UnknownCallerError
from databazaar.service.http.context import InWeb
from databazaar.service.http.cookies import SESSION, delete_cookie, known_browser, remember_browser, set_cookie
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import Anonymous, InPage, PageContext, Posted, page_of, page_of_anybody
from databazaar.service.http.resources.money import sums_of
from databazaar.service.http.routes import Routes
from databazaar.service.http.security import credentials_of, look_up
from databazaar.service.http.security_oidc import START
from databazaar.service.lifecycle import ContractState, JobState

routes = Routes()
MOST_JOBS = 10


@routes.pages.get("/sign-in")
def sign_in_page(page: Anonymous, next: str = "") -> Response:
    return _sign_in_page(page, Form(values={"next": next}))


@routes.pages.post("/sign-in")
def sign_in(page: Anonymous, posted: Posted) -> Response:
    form = Form(posted)
    email = form.needed("email", "write the address that you were invited with")
    password = form.text("password")
    if not password:
        form.blame("password", "this is empty: write your password")
    if form.faulty:
        return _sign_in_page(page, form, 422)
    browser = known_browser(page.request, page.settings, email)
    page.web.limits.sign_in(page.request, email, browser)
    try:
        with page.read() as session:
            kept = credentials.kept_password(session, email)
        credentials.check_password(kept, password)
        with page.begin() as session:
            signed = credentials.sign_in(session, email, password, kept)
    except UnknownCallerError as error:
        form.fault = str(error)
        return _sign_in_page(page, form, 401)
    page.web.limits.signed_in(page.request, email, browser)
    response = page.see(inside(form.text("next")))
    set_cookie(response, page.settings, SESSION, signed.session_secret)
    if not browser:
        remember_browser(response, page.settings, email)
    return response


@routes.pages.get("/join")
def join_page(page: Anonymous) -> Response:
    return page.render("join", "Join the market", form=Form())


@routes.pages.post("/join")
def join(page: Anonymous, posted: Posted) -> Response:
    form = Form(posted)
    secret = form.needed("secret", "paste the link from your invitation").rpartition("#")[2]
    if not form.faulty:
        page.web.limits.sign_in(page.request)
        try:
            with page.begin() as session:
                signed = credentials.redeem_link(session, secret)
                person = session.get_one(Person, signed.caller.person_id)
        except UnknownCallerError as error:
            form.blame("secret", str(error))
        else:
            response = page.see("/" if person.password else "/password")
            set_cookie(response, page.settings, SESSION, signed.session_secret)
            remember_browser(response, page.settings, person.email)
            return response
    form.posted = FormData()  # the link is not shown again
    return page.render("join", "Join the market", 422, form=form)


@routes.page("/password", "password", "Set your password")
def password_page(page: PageContext, session: Session) -> dict[str, str]:
    return {}


def _password(page: PageContext, form: Form) -> dict[str, str]:
    if form.text("password") != form.text("again"):
        form.blame("again", "the two are not the same: write the password twice")
    return {"password": form.text("password")}


routes.form("/password", "Your password is set.", "/", page=password_page, read=_password)(credentials.set_password)


@routes.pages.post("/sign-out")
def sign_out(page: InPage, _: Posted) -> Response:
    with page.begin() as session:
        credentials.sign_out(session, page.caller)
    response = page.see("/sign-in", "You have signed out.", kind="info")
    delete_cookie(response, page.settings, SESSION)
    return response


def _sign_in_page(page: PageContext, form: Form, status: int = 200) -> Response:
    return page.render(
        "sign_in", "Sign in", status, form=form, identity_provider=START if page.settings.oidc_issuer else ""
    )


def inside(path: str) -> str:
    """The page to go on to: one of this hub's own, whatever an address says.

    >>> inside("/jobs/7"), inside("//elsewhere.example"), inside("https://elsewhere.example"), inside("/\\\\elsewhere")
    ('/jobs/7', '/', '/', '/')
    """
    ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if ours else "/"


@routes.page("/", "home", "Overview", menu=("Your organisation", 1), listed_for="member")
def home(page: PageContext, session: Session) -> dict[str, Any] | Response:
    caller = page.caller
    if caller.operates and not (caller.consumes or caller.provides):
        return RedirectResponse("/operator", 303)
    own_jobs = jobs.own_jobs(session, caller) if caller.consumes else []
    asked = contracts.own_contracts(session, caller, party="provider")
    return {
        **sums_of(session, page),
        "agreed": [one for one in own_jobs if one.state == JobState.AGREED],
        "requests": [one for one in asked if one.state == ContractState.REQUESTED],
        "paid": sum(1 for one in asked if one.paid),
        "jobs": own_jobs[:MOST_JOBS],
        "offers": offers.own_offers(session, caller) if caller.provides else [],
    }


@routes.pages.get("/who-sees-what")
def who_sees_what(request: Request, web: InWeb) -> Response:
    """For everybody; those who have signed in keep the menu."""
    credentials = credentials_of(request)
    try:
        page = page_of(request, web, look_up(web, credentials)) if credentials else page_of_anybody(request, web)
    except UnknownCallerError:
        page = page_of_anybody(request, web)
    return page.render("who_sees_what", "Who sees what")
