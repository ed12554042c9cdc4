"""The market, its organisations, their people and tokens."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy.orm import Session

from databazaar.service import members
from databazaar.service.caller import Scope
from databazaar.service.http.api.calls import Asking, Call, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Name, Page, Shown, paged

router = APIRouter(prefix="/v1", tags=["members"])
Email = Annotated[str, Field(min_length=3, max_length=254)]


class MarketShown(Shown):
    """One market has one currency; a fee of 100 basis points is 1 % of what providers are paid, on top."""

    name: str
    currency: str
    decimals: int
    fee_basis_points: int


class OrganisationShown(Shown):
    id: str
    slug: str
    name: str
    operates: bool
    consumes: bool
    provides: bool
    suspended_at: dt.datetime | None
    created_at: dt.datetime


class PersonShown(Shown):
    id: str
    organisation_id: str
    email: str
    name: str
    disabled_at: dt.datetime | None
    created_at: dt.datetime


class TokenShown(Shown):
    id: str
    label: str
    scopes: list[str]
    created_at: dt.datetime
    expires_at: dt.datetime
    revoked_at: dt.datetime | None


class CallerShown(Shown):
    """Who the token or the session is, and what it may do."""

    organisation: OrganisationShown
    scopes: list[str]
    person_id: str | None
    market: MarketShown


class InvitationShown(Shown):
    """`link` signs the person in, once. The part after # reaches no server and no log: pass it on in private."""

    organisation: OrganisationShown
    person: PersonShown
    link: str


class LinkShown(Shown):
    link: str


class IssuedToken(Shown):
    """`secret` is shown this once."""

    token: TokenShown
    secret: str


class Fee(Asked):
    basis_points: int = Field(ge=0, le=10_000)


class InviteOrganisation(Asked):
    name: Name
    slug: Annotated[str, Field(min_length=1, max_length=40)]
    email: Email
    consumes: bool = False
    provides: bool = False


class InvitePerson(Asked):
    email: Email
    name: Annotated[str, Field(max_length=200)] = ""
    organisation_id: str | None = None


class IssueToken(Asked):
    """`organisation_id` is for the operator, who may issue tokens for any."""

    label: Name
    scopes: list[Scope]
    days: int = Field(default=90, ge=1, le=365)
    organisation_id: str | None = None


def link_of(call: Call, secret: str) -> str:
    return f"{call.settings.address}/join#{secret}"


@router.get("/me", response_model=CallerShown)
def me(call: Asking) -> CallerShown:
    """Who asks, and what they may do."""
    call.caller.require("read")
    with call.read() as session:
        own = next(one for one in members.organisations(session, call.caller) if one.id == call.caller.organisation_id)
        return CallerShown(
            organisation=OrganisationShown.model_validate(own),
            scopes=sorted(call.caller.scopes),
            person_id=call.caller.person_id,
            market=MarketShown.model_validate(members.market(session)),
        )


@router.get("/market", response_model=MarketShown)
def market(call: Asking) -> MarketShown:
    """The market's name, currency and fee."""
    call.caller.require("read")
    with call.read() as session:
        return MarketShown.model_validate(members.market(session))


@router.post("/market/fee", response_model=MarketShown)
def set_fee(asked: Fee, call: Doing) -> Response:
    """Sets the fee for jobs that are funded from now on. For the operator."""
    return call.do(
        lambda session: MarketShown.model_validate(members.set_fee(session, call.caller, asked.basis_points))
    )


@router.get("/organisations", response_model=Page[OrganisationShown])
def organisations(call: Asking, after: After = None, limit: Limit = 100) -> Page[OrganisationShown]:
    """All organisations for the operator; anybody else sees their own."""
    with call.read() as session:
        found = members.organisations(session, call.caller)
        return paged(found, after, limit, OrganisationShown.model_validate, lambda row: row.id)


@router.post("/organisations", response_model=InvitationShown, status_code=201)
def invite_organisation(asked: InviteOrganisation, call: Doing) -> Response:
    """Invites an organisation with its first person, by a one-time link. For the operator."""
    return call.do(
        lambda session: _invitation(call, members.invite(session, call.caller, **asked.model_dump())), 201, secret=True
    )


@router.post("/organisations/{organisation_id}/suspend", response_model=OrganisationShown)
def suspend_organisation(organisation_id: str, call: Doing) -> Response:
    """Shuts an organisation out at once, with all its tokens. For the operator."""
    return call.do(
        lambda session: OrganisationShown.model_validate(members.suspend(session, call.caller, organisation_id))
    )


@router.post("/organisations/{organisation_id}/restore", response_model=OrganisationShown)
def restore_organisation(organisation_id: str, call: Doing) -> Response:
    """Lets a suspended organisation in again. For the operator."""
    return call.do(
        lambda session: OrganisationShown.model_validate(members.restore(session, call.caller, organisation_id))
    )


@router.get("/people", response_model=Page[PersonShown])
def people(
    call: Asking, organisation_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[PersonShown]:
    """The people of one's own organisation, or of any for the operator."""
    with call.read() as session:
        found = members.people(session, call.caller, organisation_id)
        return paged(found, after, limit, PersonShown.model_validate, lambda row: row.id)


@router.post("/people", response_model=InvitationShown, status_code=201)
def invite_person(asked: InvitePerson, call: Doing) -> Response:
    """Invites a colleague by a one-time link, or by the operator anybody's. It takes a person who has signed in."""
    return call.do(
        lambda session: _invitation(call, members.invite_person(session, call.caller, **asked.model_dump())),
        201,
        secret=True,
    )


@router.post("/people/{person_id}/link", response_model=LinkShown, status_code=201)
def issue_link(person_id: str, call: Doing) -> Response:
    """A new one-time link for somebody; earlier ones of theirs hold no longer. It takes a person who has signed in."""
    return call.do(
        lambda session: LinkShown(link=link_of(call, members.issue_link(session, call.caller, person_id))),
        201,
        secret=True,
    )


@router.post("/people/{person_id}/disable", response_model=PersonShown)
def disable_person(person_id: str, call: Doing) -> Response:
    """Shuts one person out, with all their tokens."""
    return call.do(lambda session: PersonShown.model_validate(members.disable_person(session, call.caller, person_id)))


@router.get("/tokens", response_model=Page[TokenShown])
def tokens(call: Asking, after: After = None, limit: Limit = 100) -> Page[TokenShown]:
    """The organisation's API tokens; never their secrets."""
    with call.read() as session:
        found = members.tokens(session, call.caller)
        return paged(found, after, limit, TokenShown.model_validate, lambda row: row.id)


@router.post("/tokens", response_model=IssuedToken, status_code=201)
def issue_token(asked: IssueToken, call: Doing) -> Response:
    """A new API token. Only a person who has signed in may issue one."""

    def deed(session: Session) -> IssuedToken:
        token, secret = members.issue_token(session, call.caller, **asked.model_dump())
        return IssuedToken(token=TokenShown.model_validate(token), secret=secret)

    return call.do(deed, 201, secret=True)


@router.post("/tokens/{token_id}/revoke", response_model=TokenShown)
def revoke_token(token_id: str, call: Doing) -> Response:
    """Ends a token at once."""
    return call.do(lambda session: TokenShown.model_validate(members.revoke_token(session, call.caller, token_id)))


def _invitation(call: Call, made: members.Invitation) -> InvitationShown:
    return InvitationShown(
        organisation=OrganisationShown.model_validate(made.organisation),
        person=PersonShown.model_validate(made.person),
        link=link_of(call, made.secret),
    )
