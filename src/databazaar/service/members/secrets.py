"""Secrets of 256 random bits. Only their SHA-256 is kept: with that many bits no slow hash is needed."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from sqlalchemy.orm import Session

from databazaar.service.database.columns import now
from databazaar.service.database.tables import Token


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_token(
    session: Session,
    organisation_id: str,
    person_id: str | None,
    kind: str,
    lasting: dt.timedelta,
    scopes: list[str],
    label: str = "",
) -> tuple[Token, str]:
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
    return token, secret
