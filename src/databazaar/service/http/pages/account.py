"""One's account: the people of one's organisation, and API tokens, issued and shown once, and revoked."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import credentials, members
from databazaar.service.caller import SCOPES
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Posted, Visit, Visiting

router = APIRouter(include_in_schema=False)
MEANINGS = {
    "read": "look at everything that is yours",
    "jobs": "make, submit and stop jobs",
    "offers": "make offers, and decide requests",
    "money": "fund jobs, announce deposits, ask for payouts",
    "operate": "operate the market",
}
DAYS = ("7", "30", "90", "365")


@router.get("/account")
def account_page(visit: Visiting) -> Response:
    return _page(visit, Form(), Form())


def _page(visit: Visit, form: Form, colleague: Form, status: int = 200) -> Response:
    with visit.read() as session:
        tokens = credentials.tokens(session, visit.caller)
        people = members.people(session, visit.caller)
    scopes = [(scope, scope, MEANINGS[scope]) for scope in SCOPES if scope in visit.caller.scopes]
    given = {"form": form, "colleague": colleague, "tokens": tokens, "scopes": scopes, "people": people}
    return visit.render("account", "Account", status, **given)


@router.post("/account/people")
def invite_colleague(visit: Visiting, posted: Posted) -> Response:
    form, secret = Form(posted), ""
    with form.trying(email="e-mail"), visit.begin() as session:
        secret = members.invite_person(session, visit.caller, email=form.text("email")).secret
    if form.faulty:
        return _page(visit, Form(), form, 422)
    link = f"{visit.settings.address.rstrip('/')}/join#{secret}"
    return visit.see("/account", f"Pass this link on to {form.text('email').strip()}: it works once.", secret=link)


@router.post("/account/people/{person_id}/disable")
def shut_out(visit: Visiting, _: Posted, person_id: str) -> Response:
    with visit.refusals() as refused, visit.begin() as session:
        email = members.disable_person(session, visit.caller, person_id).email
    if refused:
        return visit.see("/account", refused[0], kind="bad")
    return visit.see("/account", f"{email} can sign in no longer.")


@router.post("/account/tokens")
def issue_token(visit: Visiting, posted: Posted) -> Response:
    form = Form(posted)
    label = form.needed("label", "write what the token is for")
    scopes = form.all("scopes")
    if not scopes:
        form.blame("scopes", "a token that may do nothing is of no use: tick at least one")
    days = form.choice("days", DAYS)
    secret = ""
    with form.trying(label="label", scopes="scope"):
        if not form.faulty:
            with visit.begin() as session:
                _, secret = credentials.issue_token(session, visit.caller, label=label, scopes=scopes, days=int(days))
    if form.faulty:
        return _page(visit, form, Form(), 422)
    return visit.see("/account", f"The token “{label}” is issued.", secret=secret)


@router.post("/account/tokens/{token_id}/revoke")
def revoke_token(visit: Visiting, _: Posted, token_id: str) -> Response:
    with visit.begin() as session:
        token = credentials.revoke_token(session, visit.caller, token_id)
    return visit.see("/account", f"The token “{token.label}” holds no longer.")
