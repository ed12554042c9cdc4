"""The market, its organisations, their people and tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import credentials, members
from databazaar.service.caller import Scope
from databazaar.service.http.api.calls import Asking, Call, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Name, Page, paged

router = APIRouter(prefix="/v1", tags=["members"])
Email = Annotated[str, Field(min_length=3, max_length=254)]


class LinkShown(BaseModel):
    link: str


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


@router.get("/me", response_model=shapes.Caller)
def me(call: Asking) -> shapes.Caller:
    """Who asks, and what they may do."""
    call.caller.require("read")
    with call.read() as session:
        own = next(one for one in members.organisations(session, call.caller) if one.id == call.caller.organisation_id)
        return shapes.Caller(
            organisation=from_row(shapes.Organisation, own),
            scopes=sorted(call.caller.scopes),
            person_id=call.caller.person_id,
            market=from_row(shapes.Market, members.market(session)),
        )


@router.get("/market", response_model=shapes.Market)
def market(call: Asking) -> shapes.Market:
    """The market's name, currency and fee."""
    call.caller.require("read")
    with call.read() as session:
        return from_row(shapes.Market, members.market(session))


@router.post("/market/fee", response_model=shapes.Market)
def set_fee(asked: Fee, call: Doing) -> Response:
    """Sets the fee for jobs that are funded from now on. For the operator."""
    return call.do(shapes.Market, lambda session: members.set_fee(session, call.caller, asked.basis_points))


@router.get("/organisations", response_model=Page[shapes.Organisation])
def organisations(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Organisation]:
    """All organisations for the operator; anybody else sees their own."""
    with call.read() as session:
        found = members.organisations(session, call.caller)
        return paged(shapes.Organisation, found, after, limit)


@router.post("/organisations", response_model=shapes.Invitation, status_code=201)
def invite_organisation(asked: InviteOrganisation, call: Doing) -> Response:
    """Invites an organisation with its first person, by a one-time link. For the operator."""
    return call.do(
        shapes.Invitation,
        lambda session: _invitation(call, members.invite(session, call.caller, **asked.model_dump())),
        201,
        secret=True,
    )


@router.post("/organisations/{organisation_id}/suspend", response_model=shapes.Organisation)
def suspend_organisation(organisation_id: str, call: Doing) -> Response:
    """Shuts an organisation out at once, with all its tokens. For the operator."""
    return call.do(shapes.Organisation, lambda session: members.suspend(session, call.caller, organisation_id))


@router.post("/organisations/{organisation_id}/restore", response_model=shapes.Organisation)
def restore_organisation(organisation_id: str, call: Doing) -> Response:
    """Lets a suspended organisation in again. For the operator."""
    return call.do(shapes.Organisation, lambda session: members.restore(session, call.caller, organisation_id))


@router.get("/people", response_model=Page[shapes.Person])
def people(
    call: Asking, organisation_id: str | None = None, after: After = None, limit: Limit = 100
) -> Page[shapes.Person]:
    """The people of one's own organisation, or of any for the operator."""
    with call.read() as session:
        found = members.people(session, call.caller, organisation_id)
        return paged(shapes.Person, found, after, limit)


@router.post("/people", response_model=shapes.Invitation, status_code=201)
def invite_person(asked: InvitePerson, call: Doing) -> Response:
    """Invites a colleague by a one-time link, or by the operator anybody's. It takes a person who has signed in."""
    return call.do(
        shapes.Invitation,
        lambda session: _invitation(call, members.invite_person(session, call.caller, **asked.model_dump())),
        201,
        secret=True,
    )


@router.post("/people/{person_id}/link", response_model=LinkShown, status_code=201)
def issue_link(person_id: str, call: Doing) -> Response:
    """A new one-time link for somebody; earlier ones of theirs hold no longer. It takes a person who has signed in."""
    return call.do(
        LinkShown,
        lambda session: LinkShown(link=link_of(call, credentials.issue_link(session, call.caller, person_id))),
        201,
        secret=True,
    )


@router.post("/people/{person_id}/disable", response_model=shapes.Person)
def disable_person(person_id: str, call: Doing) -> Response:
    """Shuts one person out, with all their tokens."""
    return call.do(shapes.Person, lambda session: members.disable_person(session, call.caller, person_id))


@router.get("/tokens", response_model=Page[shapes.Token])
def tokens(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Token]:
    """The organisation's API tokens; never their secrets."""
    with call.read() as session:
        found = credentials.tokens(session, call.caller)
        return paged(shapes.Token, found, after, limit)


@router.post("/tokens", response_model=shapes.IssuedToken, status_code=201)
def issue_token(asked: IssueToken, call: Doing) -> Response:
    """A new API token. Only a person who has signed in may issue one."""

    def deed(session: Session) -> shapes.IssuedToken:
        token, secret = credentials.issue_token(session, call.caller, **asked.model_dump())
        return shapes.IssuedToken(token=from_row(shapes.Token, token), secret=secret)

    return call.do(shapes.IssuedToken, deed, 201, secret=True)


@router.post("/tokens/{token_id}/revoke", response_model=shapes.Token)
def revoke_token(token_id: str, call: Doing) -> Response:
    """Ends a token at once."""
    return call.do(shapes.Token, lambda session: credentials.revoke_token(session, call.caller, token_id))


def _invitation(call: Call, made: members.Invitation) -> shapes.Invitation:
    return shapes.Invitation(
        organisation=from_row(shapes.Organisation, made.organisation),
        person=from_row(shapes.Person, made.person),
        link=link_of(call, made.secret),
    )
