"""One request of a program: reading, or a command that is done once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic_core import to_json
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from databazaar.client.conversion import Shape, from_row
from databazaar.errors import BazaarError
from databazaar.service.caller import Caller
from databazaar.service.errors import InvalidError, ServiceError
from databazaar.service.http import repeats
from databazaar.service.http.context import Call, InWeb
from databazaar.service.http.errors import refusal
from databazaar.service.http.security_callers import CallerOf, Credentials, credentials_of

PASSING = frozenset({401, 429, 500})
"""Refusals that say nothing about the request itself: they are not kept."""
MOST_PARTS, CHUNK = 60, 2**20
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
    """`named` is what makes the request the same as another, and `form` holds the parts of an upload."""

    key: str | None = None
    named: str = ""
    form: FormData | None = None

    @property
    def credentials(self) -> Credentials:
        found = credentials_of(self.request)
        assert found is not None  # there is a caller
        return found

    def do(
        self,
        shape: type[Shape],
        command: Callable[[Session], object],
        status: int = 200,
        *,
        secret: bool = False,
        late: bool = False,
    ) -> Response:
        """Does the command and keeps what it gives, in this shape, both in one transaction; or gives the answer of the
        first time.

        With `secret`, the answer is kept so that this caller alone can read it. With `late` the command works long
        before it touches the database, and its key is claimed after that: nobody waits for it meanwhile.
        """
        try:
            with self.begin() as session:
                if not late:
                    self._claim(session)
                response = Response(to_json(shown(shape, command(session))), status, media_type="application/json")
                if late:
                    self._claim(session)
                self._keep(session, response, self.credentials.secret if secret else None)
        except _Repeated as repeated:
            return repeated.response
        except BazaarError as refused:
            return self._refused(refused)
        for one in self.after:
            one()
        return response

    def _claim(self, session: Session) -> None:
        """Takes the key for this transaction; where it was answered before, the transaction ends and that is said."""
        if self.key:
            before = repeats.claim(session, self.caller.organisation_id, self.key, self.named)
            if before is not None:
                raise _Repeated(repeats.repeated(before, self.credentials.secret))

    def _keep(self, session: Session, response: Response, seal: str | None = None) -> None:
        if self.key:
            repeats.keep(session, self.caller.organisation_id, self.key, response, seal)

    def _refused(self, refused: BazaarError) -> Response:
        """Nothing was done; with a key, that it was refused is kept."""
        if not self.key or (isinstance(refused, ServiceError) and refused.status in PASSING):
            raise refused
        response = refusal(refused)
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


def shown(shape: Any, row: Any) -> Any:
    """A row of the database as it is shown; what has its shape already, or is a whole response, stays as it is."""
    return row if isinstance(row, shape | Response) else from_row(shape, row)


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
        yield ApiCall(web, request, caller, key, named, form)


Reading = Annotated[ApiCall, Depends(_reading)]
Writing = Annotated[ApiCall, Depends(_writing)]
Sending = Annotated[ApiCall, Depends(_sending)]


def _named(request: Request, caller: Caller, body: bytes) -> str:
    """What makes a request the same as another: the same caller's token, the same place, the same body."""
    parts = (request.method, request.url.path, request.url.query, caller.token_id or caller.person_id or "")
    return hashlib.sha256(b"\0".join([*(part.encode() for part in parts), body])).hexdigest()


def _digest_of_form(form: FormData) -> bytes:
    """The parts of a form by name and content: what stands between them is random."""
    found = hashlib.sha256()
    for name, part in form.multi_items():
        named, content = (part.filename or "", part.file) if isinstance(part, UploadFile) else ("", part)
        inner = hashlib.sha256()
        if isinstance(content, str):
            inner.update(content.encode())
        else:
            while chunk := content.read(CHUNK):
                inner.update(chunk)
            content.seek(0)
        found.update(f"{len(name)}:{name}{len(named)}:{named}{inner.hexdigest()}".encode())
    return found.digest()
