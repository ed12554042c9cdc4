"""Passwords, hashed with argon2. Whether an e-mail is known cannot be told from the answer, nor from its time."""

from __future__ import annotations

from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Person, Token
from databazaar.service.errors import DeniedError, InvalidError, UnknownCallerError
from databazaar.service.members.links import Signed, revoke_of, signed_in

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
    revoke_of(session, person.id, "link")
    others = update(Token).where(
        Token.person_id == person.id,
        Token.kind == "session",
        Token.id != (caller.token_id or ""),
        Token.revoked_at.is_(None),
    )
    session.execute(others.values(revoked_at=now()))
    session.flush()


def kept_password(session: Session, email: str) -> str | None:
    """The hash that somebody's password must fit, for `check_password`."""
    person = _by_email(session, email)
    return None if person is None else person.password


def check_password(kept: str | None, password: str) -> None:
    """One sentence for all that can be wrong, after the same work. It takes its time, so do it in no transaction."""
    holds = _verified(kept or _nobodys(), password)
    if kept is None or not holds:
        raise UnknownCallerError(_WRONG)


def sign_in(session: Session, email: str, password: str, checked: str | None = None) -> Signed:
    """`checked` is a hash that the password was found to fit: if it still is the person's, nothing is computed here,
    where others wait to write."""
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


def _verified(kept: str, password: str) -> bool:
    try:
        return _HASHER.verify(kept, password[: LONGEST + 1])
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobodys() -> str:
    """A hash that no password fits, to be checked where there is none."""
    import secrets

    return _HASHER.hash(secrets.token_urlsafe(32))
