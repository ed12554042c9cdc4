"""One request of a program: reading, or a command that is done once for an Idempotency-Key.

The answer is kept in the transaction of the command itself, so either both are there or neither. A second request that
comes while the first is under way waits for it: on PostgreSQL for the key's row, on SQLite for the one write lock.
Refusals are kept too. An answer may hold a secret: it is kept sealed under that of the token that asked, which the hub
does not have.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from cryptography.fernet import Fernet
from fastapi import Depends, Header, Request, Response
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from databazaar.errors import BazaarError
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Answered, now
from databazaar.service.errors import InvalidError, ServiceError
from databazaar.service.http.context import Call, InWeb
from databazaar.service.http.errors import handled
from databazaar.service.http.security import CallerOf, Credentials, credentials_of

PASSING = frozenset({401, 429, 500})
"""Refusals that say nothing about the request itself: they are not kept."""
REPEATED = "Idempotency-Replayed"
MOST_PARTS = 60
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=8,
        max_length=100,
        pattern=r"^[!-~]+$",
        description="Random text that names this request: sent again with the same body, it gets the same answer and "
        "nothing is done twice; with another body it is refused with 422.",
    ),
]


@dataclass(frozen=True)
class ApiCall(Call):
    """`named` is what makes the request the same as another."""

    key: str | None = None
    named: str = ""

    @property
    def credentials(self) -> Credentials:
        found = credentials_of(self.request)
        assert found is not None  # there is a caller
        return found

    def do(
        self, shape: Any, command: Callable[[Session], object], status: int = 200, *, late: bool = False
    ) -> Response:
        """Does the command and keeps what it gives, in this shape, both in one transaction; or gives the answer of the
        first time. With `late` the command works long before it touches the database, and its key is claimed after
        that: nobody waits for it meanwhile."""
        try:
            with self.begin() as session:
                if not late:
                    self._claim(session)
                response = Response(to_json(shown(shape, command(session))), status, media_type="application/json")
                if late:
                    self._claim(session)
                self._keep(session, response)
        except _Repeated as repeated:
            return repeated.response
        except BazaarError as refused:
            return self._refused(refused)
        self.committed()
        return response

    def _claim(self, session: Session) -> None:
        """Takes the key for this transaction; where it was answered before, the transaction ends and that is said."""
        if not self.key:
            return
        insert: Any = (postgresql if session.get_bind().dialect.name == "postgresql" else sqlite).insert(Answered)
        row = {"organisation_id": self.caller.organisation_id, "key": self.key, "request": self.named}
        taken = insert.values(**row, created_at=now()).on_conflict_do_nothing().returning(Answered.key)
        if session.scalar(taken) is not None:
            return
        before = session.get(Answered, (self.caller.organisation_id, self.key), populate_existing=True)
        if before is None or before.request != self.named:
            raise InvalidError("this Idempotency-Key was used for another request: make a new key for a new request")
        assert before.status is not None and before.answer is not None
        body = sealed_by(self.credentials.secret).decrypt(before.answer)
        raise _Repeated(Response(body, before.status, {REPEATED: "true"}, "application/json"))

    def _keep(self, session: Session, response: Response) -> None:
        """Writes the answer beside the key that this transaction has claimed."""
        if self.key:
            row = session.get_one(Answered, (self.caller.organisation_id, self.key), populate_existing=True)
            row.status = response.status_code
            row.answer = sealed_by(self.credentials.secret).encrypt(bytes(response.body))
            session.flush()

    def _refused(self, refused: BazaarError) -> Response:
        """Nothing was done; with a key, that it was refused is kept."""
        if not self.key or (isinstance(refused, ServiceError) and refused.status in PASSING):
            raise refused
        response = handled(self.request, refused)
        assert response is not None
        try:
            with self.begin() as session:
                self._claim(session)
                self._keep(session, response)
        except _Repeated as repeated:
            return repeated.response
        return response


class _Repeated(Exception):  # noqa: N818
    """Ends a transaction whose request was answered before."""

    def __init__(self, response: Response) -> None:
        self.response = response


def sealed_by(secret: str) -> Fernet:
    """Callers' secrets are 256 random bits, so one hash makes a key; it is not the one by which tokens are found."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"databazaar: answers\0" + secret.encode()).digest()))


def shown(shape: Any, row: Any) -> Any:
    """A row of the database as it is shown; what has its shape already, or is a whole response, stays as it is."""
    return row if isinstance(row, shape | Response) else shape.of(row)


async def _reading(request: Request, web: InWeb, caller: CallerOf) -> ApiCall:
    return ApiCall(web, request, caller)


async def _writing(request: Request, web: InWeb, caller: CallerOf, key: Key = None) -> ApiCall:
    return ApiCall(web, request, caller, key, _named(request, caller, await request.body()))


async def _sending(request: Request, web: InWeb, caller: CallerOf, key: Key = None) -> AsyncIterator[ApiCall]:
    """The caller is known before a byte of the upload is read."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InvalidError("this takes a form with files: send multipart/form-data")
    async with request.form(max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=web.settings.most_body) as form:
        named = _named(request, caller, await run_in_threadpool(_digest_of_form, form))
        yield ApiCall(web, request, caller, key, named, posted=form)


Reading = Annotated[ApiCall, Depends(_reading)]
Writing = Annotated[ApiCall, Depends(_writing)]
Sending = Annotated[ApiCall, Depends(_sending)]


def _named(request: Request, caller: Caller, body: bytes) -> str:
    """What makes a request the same as another: the same caller's token, the same place, the same body."""
    parts = (request.method, request.url.path, request.url.query, caller.token_id or caller.person_id or "")
    return hashlib.sha256(b"\0".join([*(part.encode() for part in parts), body])).hexdigest()


def _digest_of_form(form: FormData) -> bytes:
    """The parts of a form by name and content: what stands between them is random."""
    parts = []
    for name, part in form.multi_items():
        if isinstance(part, UploadFile):
            content = hashlib.file_digest(part.file, "sha256")  # type: ignore[arg-type]
            parts.append([name, part.filename, content.hexdigest()])
            part.file.seek(0)
        else:
            parts.append([name, part])
    return to_json(parts)
