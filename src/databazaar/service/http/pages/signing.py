"""Coming in and going out: by password, or once by a link."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import credentials
from databazaar.service.database.tables import Person
from databazaar.service.errors import UnknownCallerError
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Posted, PostedByAnybody, Stranger, Visit, Visiting
from databazaar.service.http.security_browsers import known_browser, remember_browser
from databazaar.service.http.security_callers import begin_session, end_session
from databazaar.service.http.security_oidc import START

router = APIRouter(include_in_schema=False)


@router.get("/sign-in")
def sign_in_page(visit: Stranger, next: str = "") -> Response:
    return _sign_in_page(visit, Form(values={"next": next}))


@router.post("/sign-in")
def sign_in(visit: Stranger, posted: PostedByAnybody) -> Response:
    form = Form(posted)
    email = form.needed("email", "write the address that you were invited with")
    password = form.text("password")
    if not password:
        form.blame("password", "this is empty: write your password")
    if form.faulty:
        return _sign_in_page(visit, form, 422)
    browser = known_browser(visit.request, visit.settings, email)
    visit.web.limits.sign_in(visit.request, email, browser)
    try:
        with visit.read() as session:
            kept = credentials.kept_password(session, email)
        credentials.check_password(kept, password)
        with visit.begin() as session:
            signed = credentials.sign_in(session, email, password, kept)
    except UnknownCallerError as error:
        form.fault = str(error)
        return _sign_in_page(visit, form, 401)
    visit.web.limits.signed_in(visit.request, email, browser)
    response = visit.see(inside(form.text("next")))
    begin_session(response, visit.settings, signed.session_secret)
    if not browser:
        remember_browser(response, visit.settings, email)
    return response


@router.get("/join")
def join_page(visit: Stranger) -> Response:
    return visit.render("join", "Join the market", form=Form())


@router.post("/join")
def join(visit: Stranger, posted: PostedByAnybody) -> Response:
    form = Form(posted)
    secret = form.needed("secret", "paste the link from your invitation").rpartition("#")[2]
    if not form.faulty:
        visit.web.limits.sign_in(visit.request)
        try:
            with visit.begin() as session:
                signed = credentials.redeem_link(session, secret)
                person = session.get_one(Person, signed.caller.person_id)
        except UnknownCallerError as error:
            form.blame("secret", str(error))
        else:
            response = visit.see("/" if person.password else "/password")
            begin_session(response, visit.settings, signed.session_secret)
            remember_browser(response, visit.settings, person.email)
            return response
    return visit.render("join", "Join the market", 422, form=form.without("secret"))


@router.get("/password")
def password_page(visit: Visiting) -> Response:
    return visit.render("password", "Set your password", form=Form())


@router.post("/password")
def set_password(visit: Visiting, posted: Posted) -> Response:
    form = Form(posted)
    if form.text("password") != form.text("again"):
        form.blame("again", "the two are not the same: write the password twice")
    with form.trying(**{"password": "password"}):
        if not form.faulty:
            with visit.begin() as session:
                credentials.set_password(session, visit.caller, form.text("password"))
    if form.faulty:
        return visit.render("password", "Set your password", 422, form=form)
    return visit.see("/", "Your password is set.")


@router.post("/sign-out")
def sign_out(visit: Visiting, _: Posted) -> Response:
    with visit.begin() as session:
        credentials.sign_out(session, visit.caller)
    response = visit.see("/sign-in", "You have signed out.", kind="info")
    end_session(response, visit.settings)
    return response


def _sign_in_page(visit: Visit, form: Form, status: int = 200) -> Response:
    return visit.render(
        "sign_in", "Sign in", status, form=form, identity_provider=START if visit.settings.oidc_issuer else ""
    )


def inside(path: str) -> str:
    """The page to go on to: one of this hub's own, whatever an address says.

    >>> inside("/jobs/7"), inside("//elsewhere.example"), inside("https://elsewhere.example"), inside("/\\\\elsewhere")
    ('/jobs/7', '/', '/', '/')
    """
    ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if ours else "/"
