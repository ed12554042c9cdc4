"""One-time links: the secret in one signs a person in, once, until it expires."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Organisation, Person, Token
from databazaar.service.errors import DeniedError, MissingError, UnknownCallerError
from databazaar.service.members.secrets import digest_of, new_token

LINK = dt.timedelta(days=7)
SESSION = dt.timedelta(hours=12)
PERSON_ALONE = "only a person who has signed in may do this: sign in"
_SPENT = "this link was used before, has expired or never was one: ask for a new one"


@dataclass(frozen=True)
class Signed:
    """Somebody who has signed in; `session_secret` is for the cookie."""

    caller: Caller
    session_secret: str


def issue_link(session: Session, caller: Caller, person_id: str) -> str:
    """A new one-time secret for a person of one's own organisation, or by the operator for anybody. Earlier ones of
    that person hold no longer. A token makes none: with a link it could sign in as anybody, and do what they may."""
    require_person(caller)
    return link_for(session, own_person(session, caller, person_id))


def own_person(session: Session, caller: Caller, person_id: str) -> Person:
    """A colleague, for a person who has signed in; anybody, for the operator."""
    if caller.operates:
        caller.require_operator()
    else:
        require_person(caller)
    person = session.get(Person, person_id)
    if person is None or not (caller.operates or person.organisation_id == caller.organisation_id):
        raise MissingError("there is no such person: look at the list of your people")
    refuse_program(caller, session.get_one(Organisation, person.organisation_id))
    return person


def require_person(caller: Caller) -> None:
    if caller.person_id is None:
        raise DeniedError(PERSON_ALONE)


def refuse_program(caller: Caller, organisation: Organisation) -> None:
    """A token makes no one who could make tokens, be it a colleague or another operator: it would outlive itself."""
    if caller.person_id is None and (organisation.operates or organisation.id == caller.organisation_id):
        raise DeniedError(PERSON_ALONE)


def link_for(session: Session, person: Person) -> str:
    """A one-time secret for somebody; earlier ones of theirs hold no longer."""
    revoke_of(session, person.id, "link")
    return new_token(session, person.organisation_id, person.id, "link", LINK, [])[1]


def revoke_of(session: Session, person_id: str, *kinds: str) -> None:
    """Ends all tokens of these kinds that a person has."""
    theirs = update(Token).where(Token.person_id == person_id, Token.kind.in_(kinds), Token.revoked_at.is_(None))
    session.execute(theirs.values(revoked_at=now()))


def redeem_link(session: Session, secret: str) -> Signed:
    """Signs in whoever has the secret. Of two who use it at once one comes in: the database decides who."""
    moment, digest = now(), digest_of(secret)
    used = session.execute(
        update(Token)
        .where(
            Token.digest == digest,
            Token.kind == "link",
            Token.used_at.is_(None),
            Token.revoked_at.is_(None),
            Token.expires_at > moment,
        )
        .values(used_at=moment)
    )
    assert isinstance(used, CursorResult)
    person_id = session.scalar(select(Token.person_id).where(Token.digest == digest)) if used.rowcount == 1 else None
    person = session.get(Person, person_id) if person_id else None
    if person is None:
        raise UnknownCallerError(_SPENT)
    return signed_in(session, person, _SPENT)


def signed_in(session: Session, person: Person, otherwise: str) -> Signed:
    """A new session for somebody who has shown who they are; `otherwise` is said to those who are shut out."""
    organisation = session.get(Organisation, person.organisation_id)
    if organisation is None or organisation.suspended_at is not None or person.disabled_at is not None:
        raise UnknownCallerError(otherwise)
    token, secret = new_token(session, organisation.id, person.id, "session", SESSION, [])
    return Signed(Caller.of(organisation, person_id=person.id, token_id=token.id), secret)
