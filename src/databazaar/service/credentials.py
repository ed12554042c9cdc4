"""Passwords, tokens, sessions and one-time links: how people and programs show who they are.

Secrets have 256 random bits, of which only the SHA-256 is kept: with that many bits no slow hash is needed. Passwords
are hashed with argon2; whether an e-mail is known cannot be told from the answer, nor from its time.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from databazaar.service.caller import SCOPES, Caller, allowed_scopes
from databazaar.service.database.tables import Organisation, Person, Token, now
from databazaar.service.errors import DeniedError, InvalidError, MissingError, UnknownCallerError
from databazaar.service.names import visible


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class NewToken(NamedTuple):
    token: Token
    secret: str


def new_token(
    session: Session,
    organisation_id: str,
    person_id: str | None,
    kind: str,
    lasting: dt.timedelta,
    scopes: list[str],
    label: str = "",
) -> NewToken:
    """A token's row and its secret, which is nowhere else from here on."""
    secret = secrets.token_urlsafe(32)
    token = Token(
        organisation_id=organisation_id,
        person_id=person_id,
        kind=kind,
        label=label,
        digest=digest_of(secret),
        scopes=scopes,
        expires_at=now() + lasting,
    )
    session.add(token)
    session.flush()
    return NewToken(token, secret)


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
    """A new one-time secret for a colleague, or by the operator for anybody; a token issues none, as it could sign
    in."""
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


def revoke_of(session: Session, person_id: str, *kinds: str, but: str | None = None) -> None:
    """Ends all tokens of these kinds that a person has, `but` the one with this id."""
    theirs = update(Token).where(Token.person_id == person_id, Token.kind.in_(kinds), Token.revoked_at.is_(None))
    session.execute(theirs.where(Token.id.is_distinct_from(but)).values(revoked_at=now()))


def redeem_link(session: Session, secret: str) -> Signed:
    """Signs in the holder of the secret. Of two who use it at once one is signed in: the database decides."""
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
    organisation = session.get_one(Organisation, person.organisation_id)
    if organisation.suspended_at is not None or person.disabled_at is not None:
        raise UnknownCallerError(otherwise)
    token, secret = new_token(session, organisation.id, person.id, "session", SESSION, [])
    return Signed(Caller.of(organisation, person_id=person.id, token_id=token.id), secret)


LONGEST_DAYS = 365


def caller_of(session: Session, secret: str, kind: Literal["api", "session"]) -> Caller:
    """Whose token this is, if it is valid and neither its organisation is suspended nor its person disabled."""
    held = (
        select(Token, Organisation)
        .join(Organisation, Token.organisation_id == Organisation.id)
        .outerjoin(Person, Token.person_id == Person.id)
        .where(Token.digest == digest_of(secret), Token.kind == kind)
        .where(Token.revoked_at.is_(None), Token.expires_at > now())
        .where(Organisation.suspended_at.is_(None), Person.disabled_at.is_(None))
    )
    known = session.execute(held).one_or_none()
    if known is None:
        again = "sign in again" if kind == "session" else "send one that holds, which your organisation can issue"
        raise UnknownCallerError(f"this token is unknown, has expired or was revoked: {again}")
    token, organisation = known
    if kind == "session":
        return Caller.of(organisation, person_id=token.person_id, token_id=token.id)
    return Caller.of(organisation, frozenset(token.scopes), token_id=token.id)  # a program, whichever person made it


def issue_token(
    session: Session,
    caller: Caller,
    *,
    label: str,
    scopes: Sequence[str],
    days: int = 90,
    organisation_id: str | None = None,
) -> NewToken:
    """A new API token and its secret, which is shown this once. A person who has signed in makes it for their own
    organisation, with no more rights than it has; the operator for any. A token makes no tokens."""
    organisation = _whose(session, caller, organisation_id)
    if not scopes or set(scopes) - set(SCOPES):
        said = f"scopes = {list(scopes)!r} must name some of {', '.join(SCOPES)}: correct them"
        raise InvalidError(said, place="scopes")
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


LEAST, LONGEST = 12, 200
_WRONG = "the e-mail or the password is wrong: try again, or ask for a one-time link"
_HASHER = PasswordHasher()


def set_password(session: Session, caller: Caller, password: str) -> None:
    """For the person who has signed in. All their other sessions end, and links that are still open."""
    if caller.person_id is None or (person := session.get(Person, caller.person_id)) is None:
        raise DeniedError("only a person who has signed in has a password: sign in")
    if not LEAST <= len(password) <= LONGEST:
        raise InvalidError(f"a password has {LEAST} to {LONGEST} characters: choose another one", place="password")
    person.password = _HASHER.hash(password)
    revoke_of(session, person.id, "link", "session", but=caller.token_id)


def kept_password(session: Session, email: str) -> str | None:
    """The hash that somebody's password must fit, for `check_password`."""
    person = _by_email(session, email)
    return None if person is None else person.password


def check_password(kept: str | None, password: str) -> None:
    """One sentence for all that can be wrong, after the same work. It takes its time, so do it in no transaction."""
    try:
        _HASHER.verify(kept or _nobodys(), password[: LONGEST + 1])
    except (VerificationError, InvalidHashError):
        kept = None
    if kept is None:
        raise UnknownCallerError(_WRONG)


def sign_in(session: Session, email: str, password: str, checked: str | None = None) -> Signed:
    """`checked` is a hash that the password fits: if it is still the person's, nothing is computed in this
    transaction."""
    person = _by_email(session, email)
    kept = None if person is None else person.password
    if kept is None or kept != checked:
        check_password(kept, password)
    assert person is not None and kept is not None
    signed = signed_in(session, person, _WRONG)
    if _HASHER.check_needs_rehash(kept):
        person.password = _HASHER.hash(password)
    return signed


def sign_in_vouched(session: Session, email: str) -> Signed:
    """For somebody whose e-mail the market's identity provider has just vouched for."""
    nobody = "nobody with this e-mail takes part in the market: ask its operator for an invitation"
    person = _by_email(session, email)
    if person is None:
        raise UnknownCallerError(nobody)
    return signed_in(session, person, nobody)


def _by_email(session: Session, email: str) -> Person | None:
    email = email.strip().lower()
    return session.scalar(select(Person).where(Person.email == email)) if email.isprintable() else None


@cache
def _nobodys() -> str:
    """A hash that no password fits, to be checked where there is none."""
    return _HASHER.hash(secrets.token_urlsafe(32))
