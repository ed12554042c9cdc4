"""One's account: API tokens, issued and shown once, and revoked."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import members
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
    return _page(visit, Form())


def _page(visit: Visit, form: Form, status: int = 200) -> Response:
    with visit.read() as session:
        tokens = members.tokens(session, visit.caller)
    scopes = [(scope, scope, MEANINGS[scope]) for scope in SCOPES if scope in visit.caller.scopes]
    return visit.render("account", "Account", status, form=form, tokens=tokens, scopes=scopes)


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
                _, secret = members.issue_token(session, visit.caller, label=label, scopes=scopes, days=int(days))
    if form.faulty:
        return _page(visit, form, 422)
    return visit.see("/account", f"The token “{label}” is issued.", secret=secret)


@router.post("/account/tokens/{token_id}/revoke")
def revoke_token(visit: Visiting, _: Posted, token_id: str) -> Response:
    with visit.begin() as session:
        token = members.revoke_token(session, visit.caller, token_id)
    return visit.see("/account", f"The token “{token.label}” holds no longer.")
