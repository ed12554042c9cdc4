"""Tokens: how a program, or a browser that has signed in, shows who it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Literal

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from databazaar.service.caller import SCOPES, Caller, allowed_scopes
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Organisation, Person, Token
from databazaar.service.errors import DeniedError, InvalidError, MissingError, UnknownCallerError
from databazaar.service.members.secrets import digest_of, new_token
from databazaar.service.wording import visible

LONGEST_DAYS = 365


_KNOWN = (
    select(Token.id, Token.organisation_id, Token.person_id, Token.scopes)
    .add_columns(Organisation.slug, Organisation.operates, Organisation.consumes, Organisation.provides)
    .join(Organisation, Token.organisation_id == Organisation.id)
    .outerjoin(Person, Token.person_id == Person.id)
    .where(Token.digest == bindparam("digest"), Token.kind == bindparam("kind"))
    .where(Token.revoked_at.is_(None), Token.expires_at > bindparam("now"))
    .where(Organisation.suspended_at.is_(None), Person.disabled_at.is_(None))
)
"""A token that holds, with whose it is. Every request asks this, so it is one question, and no rows are kept of it."""


def caller_of(session: Session, secret: str, kind: Literal["api", "session"]) -> Caller:
    """Whose token this is, if it holds at this moment and neither its organisation is suspended nor its person
    disabled."""
    known = session.execute(_KNOWN, {"digest": digest_of(secret), "kind": kind, "now": now()}).one_or_none()
    if known is None:
        again = "sign in again" if kind == "session" else "send one that holds, which your organisation can issue"
        raise UnknownCallerError(f"this token is unknown, has expired or was revoked: {again}")
    roles = known.operates, known.consumes, known.provides
    allowed = allowed_scopes(*roles)
    if kind == "session":
        return Caller(known.organisation_id, known.slug, *roles, allowed, known.person_id, known.id)
    granted = allowed & frozenset(known.scopes)  # a program, whoever has made it
    return Caller(known.organisation_id, known.slug, *roles, granted, token_id=known.id)


def issue_token(
    session: Session,
    caller: Caller,
    *,
    label: str,
    scopes: Sequence[str],
    days: int,
    organisation_id: str | None = None,
) -> tuple[Token, str]:
    """A new API token and its secret, which is shown this once. A person who has signed in makes it for their own
    organisation, with no more rights than it has; the operator for any. A token makes no tokens."""
    organisation = _whose(session, caller, organisation_id)
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidError(
            f"scopes = {list(scopes)!r} must name some of {', '.join(SCOPES)}: correct them", place="scopes"
        )
    allowed = allowed_scopes(organisation.operates, organisation.consumes, organisation.provides)
    if beyond := sorted(set(scopes) - allowed):
        raise DeniedError(f"the roles of {organisation.slug} do not give the right {beyond[0]!r}: leave it out")
    if not 1 <= days <= LONGEST_DAYS:
        raise InvalidError(f"days = {days} is not between 1 and {LONGEST_DAYS}: say how long the token is to hold")
    person_id = caller.person_id if organisation.id == caller.organisation_id else None
    lasting, named = dt.timedelta(days=days), visible(label, "label")
    return new_token(session, organisation.id, person_id, "api", lasting, sorted(set(scopes)), named)


def _whose(session: Session, caller: Caller, organisation_id: str | None) -> Organisation:
    if caller.person_id is None:
        raise DeniedError("only a person who has signed in may issue tokens: sign in")
    if organisation_id not in (None, caller.organisation_id):
        caller.require_operator()
    found = session.get(Organisation, organisation_id or caller.organisation_id)
    if found is None:
        raise MissingError("there is no such organisation: look at the list of organisations")
    return found


def revoke_token(session: Session, caller: Caller, token_id: str) -> Token:
    """Ends a token of one's own organisation at once; the operator's word ends any."""
    token = session.get(Token, token_id)
    if token is None or not (caller.sees_all or token.organisation_id == caller.organisation_id):
        raise MissingError("there is no such token: look at the list of your tokens")
    if caller.person_id is None and not caller.sees_all and token.id != caller.token_id:
        raise DeniedError("a token revokes itself alone: sign in to revoke others")
    token.revoked_at = token.revoked_at or now()
    session.flush()
    return token


def tokens(session: Session, caller: Caller) -> list[Token]:
    """The organisation's API tokens, the newest first; never their secrets, which nobody has."""
    caller.require("read")
    own = select(Token).where(Token.organisation_id == caller.organisation_id, Token.kind == "api")
    return list(session.scalars(own.order_by(Token.created_at.desc(), Token.id)))


def sign_out(session: Session, caller: Caller) -> None:
    """Ends the session that the caller came with."""
    token = session.get(Token, caller.token_id) if caller.token_id is not None else None
    if token is not None:
        token.revoked_at = token.revoked_at or now()
        session.flush()
