"""The market, its organisations, their people and tokens; the pages Account and Organisations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import credentials, members
from databazaar.service.caller import SCOPES, Scope
from databazaar.service.database.tables import Market, Organisation, Person, Token
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Name, Routes

routes = Routes("members")
Email = Annotated[str, Field(min_length=3, max_length=254)]
MEANINGS = {
    "read": "look at everything that is yours",
    "jobs": "make, submit and stop jobs",
    "offers": "make offers, and decide requests",
    "money": "fund jobs, announce deposits, ask for payouts",
    "operate": "operate the market",
}
DAYS = ("7", "30", "90", "365")
ORGANISATIONS = "/operator/organisations"


class LinkShown(BaseModel):
    link: str


@routes.page("/account", "account", "Account", forms=("form", "colleague"), menu=("Your organisation", "Account", 4))
def account_page(page: PageContext, session: Session) -> dict[str, Any]:
    scopes = [(scope, scope, MEANINGS[scope]) for scope in SCOPES if scope in page.caller.scopes]
    tokens, people = credentials.tokens(session, page.caller), members.people(session, page.caller)
    return {"tokens": tokens, "scopes": scopes, "people": people}


@routes.page(
    ORGANISATIONS,
    "operator/organisations",
    "Organisations",
    role="operator",
    forms=("form",),
    menu=("Operating", "Organisations", 2),
)
def organisations_page(page: PageContext, session: Session) -> dict[str, Any]:
    first = {
        person.organisation_id: person.id
        for person in session.scalars(select(Person).order_by(Person.created_at.desc()))
    }
    held = (("operator", "operates"), ("consumer", "consumes"), ("provider", "provides"))
    lines = [
        {
            "it": one,
            "person_id": first.get(one.id),
            "roles": ", ".join(role for role, name in held if getattr(one, name)),
        }
        for one in members.organisations(session, page.caller)
    ]
    return {"organisations": lines}


@routes.read("/me", shapes.Caller)
def me(call: Call, session: Session) -> shapes.Caller:
    """Who asks, and what they may do."""
    call.caller.require("read")
    own = next(one for one in members.organisations(session, call.caller) if one.id == call.caller.organisation_id)
    return shapes.Caller(
        organisation=from_row(shapes.Organisation, own),
        scopes=sorted(call.caller.scopes),
        person_id=call.caller.person_id,
        market=from_row(shapes.Market, members.market(session)),
    )


@routes.read("/market", shapes.Market)
def market(call: Call, session: Session) -> Market:
    """The market's name, currency and fee."""
    call.caller.require("read")
    return members.market(session)


@routes.listing("/organisations", shapes.Organisation)
def organisations(call: Call, session: Session) -> list[Organisation]:
    """All organisations for the operator; anybody else sees their own."""
    return members.organisations(session, call.caller)


def _invited(page: PageContext, form: Form) -> dict[str, Any]:
    roles = form.all("roles")
    typed = {"name": form.text("name"), "slug": form.text("slug").strip(), "email": form.text("email")}
    return {**typed, "consumes": "consumes" in roles, "provides": "provides" in roles}


@routes.form(
    ORGANISATIONS,
    ORGANISATIONS,
    "{made.organisation.name} is invited: pass this link on to {made.person.email}.",
    page=organisations_page,
    read=_invited,
    secret="link",  # noqa: S106
)
@routes.write("/organisations", shapes.Invitation, 201, secret=True)
def invite_organisation(
    call: Call,
    session: Session,
    *,
    name: Name,
    slug: Annotated[str, Field(min_length=1, max_length=40)],
    email: Email,
    consumes: bool = False,
    provides: bool = False,
) -> shapes.Invitation:
    """Invites an organisation with its first person, by a one-time link. For the operator."""
    roles = {"consumes": consumes, "provides": provides}
    return _invitation(call, members.invite(session, call.caller, name=name, slug=slug, email=email, **roles))


@routes.form(
    f"{ORGANISATIONS}/{{organisation_id}}/suspend",
    ORGANISATIONS,
    "{made.name} is suspended: nobody of it signs in, and its tokens are revoked.",
    role="operator",
)
@routes.write("/organisations/{organisation_id}/suspend", shapes.Organisation)
def suspend_organisation(call: Call, session: Session, organisation_id: str) -> Organisation:
    """Shuts an organisation out at once, with all its tokens. For the operator."""
    return members.suspend(session, call.caller, organisation_id)


@routes.form(
    f"{ORGANISATIONS}/{{organisation_id}}/restore",
    ORGANISATIONS,
    "{made.name} takes part again: its people sign in as before.",
    role="operator",
)
@routes.write("/organisations/{organisation_id}/restore", shapes.Organisation)
def restore_organisation(call: Call, session: Session, organisation_id: str) -> Organisation:
    """Lets a suspended organisation in again. For the operator."""
    return members.restore(session, call.caller, organisation_id)


@routes.listing("/people", shapes.Person)
def people(call: Call, session: Session, organisation_id: str | None = None) -> list[Person]:
    """The people of one's own organisation, or of any for the operator."""
    return members.people(session, call.caller, organisation_id)


@routes.form(
    "/account/people",
    "/account",
    "Pass this link on to {made.person.email}: it works once.",
    page=account_page,
    name="colleague",
    read=lambda page, form: {"email": form.text("email")},
    secret="link",  # noqa: S106
)
@routes.write("/people", shapes.Invitation, 201, secret=True)
def invite_person(
    call: Call,
    session: Session,
    *,
    email: Email,
    name: Annotated[str, Field(max_length=200)] = "",
    organisation_id: str | None = None,
) -> shapes.Invitation:
    """Invites a colleague by a one-time link, or by the operator anybody's. It takes a person who has signed in."""
    made = members.invite_person(session, call.caller, email=email, name=name, organisation_id=organisation_id)
    return _invitation(call, made)


def _linked(page: PageContext, _: LinkShown) -> str:
    with page.read() as session:
        person = session.get_one(Person, page.request.path_params["person_id"])
    return f"A new one-time link for {person.email}; earlier ones hold no longer."


@routes.form("/operator/people/{person_id}/link", ORGANISATIONS, _linked, role="operator", secret="link")  # noqa: S106
@routes.write("/people/{person_id}/link", LinkShown, 201, secret=True)
def issue_link(call: Call, session: Session, person_id: str) -> LinkShown:
    """A new one-time link for somebody; earlier ones of theirs hold no longer. It takes a person who has signed in."""
    return LinkShown(link=_link(call, credentials.issue_link(session, call.caller, person_id)))


@routes.form("/account/people/{person_id}/disable", "/account", "{made.email} can sign in no longer.")
@routes.write("/people/{person_id}/disable", shapes.Person)
def disable_person(call: Call, session: Session, person_id: str) -> Person:
    """Shuts one person out, with all their tokens."""
    return members.disable_person(session, call.caller, person_id)


@routes.listing("/tokens", shapes.Token)
def tokens(call: Call, session: Session) -> list[Token]:
    """The organisation's API tokens; never their secrets."""
    return credentials.tokens(session, call.caller)


def _token(page: PageContext, form: Form) -> dict[str, Any]:
    if not form.all("scopes"):
        form.blame("scopes", "a token that may do nothing is of no use: tick at least one")
    label, days = form.needed("label", "write what the token is for"), form.choice("days", DAYS)
    return {"label": label, "scopes": form.all("scopes"), "days": int(days) if days in DAYS else 0}


@routes.form(
    "/account/tokens",
    "/account",
    "The token “{made.token.label}” is issued.",
    page=account_page,
    read=_token,
    secret="secret",  # noqa: S106
)
@routes.write("/tokens", shapes.IssuedToken, 201, secret=True)
def issue_token(
    call: Call,
    session: Session,
    *,
    label: Name,
    scopes: list[Scope],
    days: Annotated[int, Field(ge=1, le=365)] = 90,
    organisation_id: Annotated[str | None, Field(description="For the operator, who may issue tokens for any.")] = None,
) -> shapes.IssuedToken:
    """A new API token. Only a person who has signed in may issue one."""
    given: dict[str, Any] = {"label": label, "scopes": scopes, "days": days, "organisation_id": organisation_id}
    token, secret = credentials.issue_token(session, call.caller, **given)
    return shapes.IssuedToken(token=from_row(shapes.Token, token), secret=secret)


@routes.form("/account/tokens/{token_id}/revoke", "/account", "The token “{made.label}” holds no longer.")
@routes.write("/tokens/{token_id}/revoke", shapes.Token)
def revoke_token(call: Call, session: Session, token_id: str) -> Token:
    """Ends a token at once."""
    return credentials.revoke_token(session, call.caller, token_id)


def _link(call: Call, secret: str) -> str:
    return f"{call.settings.address.rstrip('/')}/join#{secret}"


def _invitation(call: Call, made: members.Invitation) -> shapes.Invitation:
    return shapes.Invitation(
        organisation=from_row(shapes.Organisation, made.organisation),
        person=from_row(shapes.Person, made.person),
        link=_link(call, made.secret),
    )
