"""The market, its organisations, and what each has: people, tokens and webhooks."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.service import credentials, members, outbox
from databazaar.service.database.tables import Organisation, Person
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes

routes = Routes("members")
MEANINGS = {
    "read": "look at everything that is yours",
    "jobs": "make, submit and stop jobs",
    "offers": "make offers, and decide requests",
    "money": "fund jobs, announce deposits, ask for payouts",
    "operate": "operate the market",
}
DAYS = ("7", "30", "90", "365")
ORGANISATIONS = "/operator/organisations"


@routes.page("/account", "account", "Account", menu=("Your organisation", 4))
def account_page(page: PageContext, session: Session) -> dict[str, Any]:
    scopes = [(scope, scope, words) for scope, words in MEANINGS.items() if scope in page.caller.scopes]
    tokens, people = credentials.tokens(session, page.caller), members.people(session, page.caller)
    return {"tokens": tokens, "scopes": scopes, "people": people}


@routes.page(ORGANISATIONS, "operator/organisations", "Organisations", role="operator", menu=("Operating", 2))
def organisations_page(page: PageContext, session: Session) -> dict[str, Any]:
    newest_first = session.scalars(select(Person).order_by(Person.created_at.desc()))
    first = {person.organisation_id: person.id for person in newest_first}
    return {"organisations": members.organisations(session, page.caller), "first_person": first}


@routes.read("/me", shapes.Caller)
def me(call: Call, session: Session) -> shapes.Caller:
    """Who asks, and what they may do."""
    call.caller.require("read")
    own = next(one for one in members.organisations(session, call.caller) if one.id == call.caller.organisation_id)
    market, scopes = members.market(session), sorted(call.caller.scopes)
    return shapes.Caller.of(call.caller, organisation=own, scopes=scopes, market=market)


routes.listing("/organisations", shapes.Organisation)(members.organisations)


def _invited(page: PageContext, form: Form) -> dict[str, Any]:
    roles = form.all("roles")
    typed = {"name": form.text("name"), "slug": form.text("slug").strip(), "email": form.text("email")}
    return {**typed, "consumes": "consumes" in roles, "provides": "provides" in roles}


@routes.form(
    ORGANISATIONS,
    "{made.organisation.name} is invited: pass this link on to {made.person.email}.",
    page=organisations_page,
    read=_invited,
    secret="link",  # noqa: S106
)
@routes.write("/organisations", shapes.Invitation, 201)
def invite_organisation(
    call: Call,
    session: Session,
    *,
    name: str,
    slug: str,
    email: str,
    consumes: bool = False,
    provides: bool = False,
) -> shapes.Invitation:
    """Invites an organisation with its first person, by a one-time link. For the operator."""
    roles = {"consumes": consumes, "provides": provides}
    return _invitation(call, members.invite(session, call.caller, name=name, slug=slug, email=email, **roles))


routes.write("/organisations/{organisation_id}/suspend", shapes.Organisation)(members.suspend)
routes.form(
    f"{ORGANISATIONS}/{{organisation_id}}/suspend",
    "{made.name} is suspended: nobody of it signs in, and its tokens are revoked.",
    ORGANISATIONS,
    role="operator",
)(members.suspend)
routes.write("/organisations/{organisation_id}/restore", shapes.Organisation)(members.restore)
routes.form(
    f"{ORGANISATIONS}/{{organisation_id}}/restore",
    "{made.name} takes part again: its people sign in as before.",
    ORGANISATIONS,
    role="operator",
)(members.restore)
routes.listing("/people", shapes.Person)(members.people)


@routes.form(
    "/account/people",
    "Pass this link on to {made.person.email}: it works once.",
    page=account_page,
    name="colleague",
    read=lambda page, form: {"email": form.text("email")},
    secret="link",  # noqa: S106
)
@routes.write("/people", shapes.Invitation, 201)
def invite_person(
    call: Call, session: Session, *, email: str, name: str = "", organisation_id: str | None = None
) -> shapes.Invitation:
    """Invites a colleague by a one-time link, or by the operator anybody's. It takes a person who has signed in."""
    made = members.invite_person(session, call.caller, email=email, name=name, organisation_id=organisation_id)
    return _invitation(call, made)


@routes.form(
    "/operator/people/{person_id}/link",
    "A new one-time link for {made.person.email}; earlier ones hold no longer.",
    ORGANISATIONS,
    role="operator",
    secret="link",  # noqa: S106
)
@routes.write("/people/{person_id}/link", shapes.Invitation, 201)
def issue_link(call: Call, session: Session, person_id: str) -> shapes.Invitation:
    """A new one-time link for somebody; earlier ones of theirs hold no longer. It takes a person who has signed in."""
    secret = credentials.issue_link(session, call.caller, person_id)
    person = session.get_one(Person, person_id)
    return _invitation(call, members.Invitation(session.get_one(Organisation, person.organisation_id), person, secret))


routes.write("/people/{person_id}/disable", shapes.Person)(members.disable_person)
routes.form("/account/people/{person_id}/disable", "{made.email} can sign in no longer.", "/account")(
    members.disable_person
)
routes.listing("/tokens", shapes.Token)(credentials.tokens)


def _token(page: PageContext, form: Form) -> dict[str, Any]:
    if not form.all("scopes"):
        form.blame("scopes", "a token that may do nothing is of no use: tick at least one")
    label, days = form.needed("label", "write what the token is for"), form.choice("days", DAYS)
    return {"label": label, "scopes": form.all("scopes"), "days": int(days) if days in DAYS else 0}


routes.write("/tokens", shapes.IssuedToken, 201)(credentials.issue_token)
routes.form(
    "/account/tokens",
    "The token “{made.token.label}” is issued.",
    page=account_page,
    read=_token,
    secret="secret",  # noqa: S106
)(credentials.issue_token)
routes.write("/tokens/{token_id}/revoke", shapes.Token)(credentials.revoke_token)
routes.form("/account/tokens/{token_id}/revoke", "The token “{made.label}” holds no longer.", "/account")(
    credentials.revoke_token
)


def _invitation(call: Call, made: members.Invitation) -> shapes.Invitation:
    return shapes.Invitation.of(made, link=f"{call.settings.address.rstrip('/')}/join#{made.secret}")


@routes.page("/webhooks", "webhooks", "Webhooks", menu=("Your organisation", 5))
def webhooks_page(page: PageContext, session: Session) -> dict[str, Any]:
    own = outbox.webhooks(session, page.caller)
    return {"webhooks": own, "told": {one.id: outbox.deliveries(session, page.caller, one.id) for one in own}}


routes.listing("/webhooks", shapes.Webhook)(outbox.webhooks)


@routes.form(
    "/webhooks",
    "The webhook is added. Keep the secret that signs what is sent there: it is not shown again.",
    page=webhooks_page,
    read=lambda page, form: {"url": form.needed("url", "write where your program listens")},
    secret="secret",  # noqa: S106
)
@routes.write("/webhooks", shapes.NewWebhook, 201)
def add_webhook(call: Call, session: Session, *, url: str) -> shapes.NewWebhook:
    """Adds a webhook, and shows the secret that signs what is sent there."""
    return outbox.add_webhook(session, call.caller, url, private=call.settings.private_webhooks)


routes.listing("/webhooks/{webhook_id}/deliveries", shapes.Delivery)(outbox.deliveries)
routes.write("/webhooks/{webhook_id}/remove", shapes.Webhook)(outbox.remove_webhook)
routes.form("/webhooks/{webhook_id}/remove", "Nothing more is sent to {made.url}.", "/webhooks", kind="info")(
    outbox.remove_webhook
)
