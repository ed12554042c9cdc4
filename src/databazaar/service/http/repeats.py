"""The same request again gets the same answer: a POST with an Idempotency-Key is done once, whatever is repeated.

The answer is kept in the transaction of the deed itself, so either both are there or neither. A second request that
comes while the first is under way waits for it: on PostgreSQL for the key's row, on SQLite for the one write lock.
Refusals are kept too. An answer that holds a secret is kept sealed under the caller's own secret, which the hub does
not have.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from fastapi import Response
from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from databazaar.service.database.columns import now
from databazaar.service.database.tables import Answered
from databazaar.service.errors import InvalidError

KEPT_FOR = dt.timedelta(days=7)
REPEATED = "Idempotency-Replayed"
_PLAIN, _SEALED = b"p", b"s"


def claim(session: Session, organisation_id: str, key: str, request: str) -> Answered | None:
    """Takes the key for this transaction, and gives None; or gives what was answered under it before."""
    insert: Any = (postgresql if session.get_bind().dialect.name == "postgresql" else sqlite).insert(Answered)
    taken = insert.values(organisation_id=organisation_id, key=key, request=request, created_at=now())
    if session.scalar(taken.on_conflict_do_nothing().returning(Answered.key)) is not None:
        return None
    before = session.get(Answered, (organisation_id, key), populate_existing=True)
    if before is None or before.request != request:
        raise InvalidError("this Idempotency-Key was used for another request: make a new key for a new request")
    return before


def keep(session: Session, organisation_id: str, key: str, response: Response, seal: str | None = None) -> None:
    """Writes the answer beside the key that this transaction has claimed; under `seal` where it holds a secret."""
    row = session.get_one(Answered, (organisation_id, key), populate_existing=True)
    body = bytes(response.body)
    row.status = response.status_code
    row.answer = _PLAIN + body if seal is None else _SEALED + sealed(seal, body)
    session.flush()


def repeated(row: Answered, secret: str) -> Response:
    body = row.answer or _PLAIN
    plain = body[1:] if body[:1] == _PLAIN else opened(secret, body[1:])
    assert row.status is not None
    return Response(plain, row.status, {REPEATED: "true"}, "application/json" if plain else None)


def forget_old(session: Session) -> None:
    """Answers are kept for a week: nobody repeats a request that long."""
    session.execute(delete(Answered).where(Answered.created_at < now() - KEPT_FOR))


def sealed(secret: str, plain: bytes) -> bytes:
    """
    >>> opened("mine", sealed("mine", b"token"))
    b'token'
    """
    nonce = os.urandom(12)
    return nonce + AESGCM(_key(secret)).encrypt(nonce, plain, None)


def opened(secret: str, box: bytes) -> bytes:
    return AESGCM(_key(secret)).decrypt(box[:12], box[12:], None)


def _key(secret: str) -> bytes:
    """Callers' secrets are 256 random bits, so one hash makes a key; it is not the one by which tokens are found."""
    return hashlib.sha256(b"databazaar: answers\0" + secret.encode()).digest()
