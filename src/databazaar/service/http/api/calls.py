"""One request of a known caller: reading, or a deed that is done once. Endpoints take `Asking` or `Doing`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic_core import to_json
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from databazaar.client.conversion import Shape
from databazaar.errors import BazaarError
from databazaar.service.caller import Caller
from databazaar.service.errors import InvalidError, ServiceError
from databazaar.service.http.api import answering
from databazaar.service.http.api.shapes import shown
from databazaar.service.http.context import InWeb, Web
from databazaar.service.http.errors import refusal
from databazaar.service.http.security_callers import CallerOf, Credentials, credentials_of
from databazaar.service.settings import Settings

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
class Call:
    """Who asks, and for what. `form` holds the parts of an upload."""

    web: Web
    caller: Caller
    credentials: Credentials
    key: str | None = None
    request: str = ""
    form: FormData | None = None

    @property
    def settings(self) -> Settings:
        return self.web.settings

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self.web.database.read() as session:
            yield session

    def do(
        self,
        shape: type[Shape],
        deed: Callable[[Session], object],
        status: int = 200,
        *,
        secret: bool = False,
        late: bool = False,
    ) -> Response:
        """Does the deed and keeps what it gives, in this shape, both in one transaction; or gives the answer of the
        first time.

        With `secret`, the answer is kept so that this caller alone can read it. With `late` the deed works long before
        it touches the database, and its key is claimed after that: nobody waits for it meanwhile.
        """
        try:
            with self.web.database.begin() as session:
                if not late:
                    self._claim(session)
                response = answered(shown(shape, deed(session)), status)
                if late:
                    self._claim(session)
                if self.key:
                    seal = self.credentials.secret if secret else None
                    answering.keep(session, self.caller.organisation_id, self.key, response, seal)
                return response
        except _Repeated as repeated:
            return repeated.response
        except BazaarError as refused:
            return self._refused(refused)

    def _claim(self, session: Session) -> None:
        """Takes the key for this transaction; where it was answered before, the transaction ends and that is said."""
        if self.key:
            before = answering.claim(session, self.caller.organisation_id, self.key, self.request)
            if before is not None:
                raise _Repeated(answering.repeated(before, self.credentials.secret))

    def _refused(self, refused: BazaarError) -> Response:
        """Nothing was done; with a key, that it was refused is kept."""
        if not self.key or (isinstance(refused, ServiceError) and refused.status in PASSING):
            raise refused
        response = refusal(refused)
        try:
            with self.web.database.begin() as session:
                self._claim(session)
                answering.keep(session, self.caller.organisation_id, self.key, response)
        except _Repeated as repeated:
            return repeated.response
        return response


class _Repeated(Exception):  # noqa: N818
    """Ends a transaction whose request was answered before."""

    def __init__(self, response: Response) -> None:
        self.response = response


def answered(answer: object, status: int) -> Response:
    return Response(to_json(answer), status, media_type="application/json")


async def _asking(request: Request, web: InWeb, caller: CallerOf) -> Call:
    return Call(web, caller, _credentials(request))


async def _doing(request: Request, web: InWeb, caller: CallerOf, key: Key = None) -> Call:
    named = _named(request, caller, await request.body())
    return Call(web, caller, _credentials(request), key, named)


async def _sending(request: Request, web: InWeb, caller: CallerOf, key: Key = None) -> AsyncIterator[Call]:
    """The caller is known before a byte of the upload is read."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InvalidError("this takes a form with files: send multipart/form-data")
    async with request.form(max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=web.settings.most_body) as form:
        named = _named(request, caller, await run_in_threadpool(_digest_of_form, form))
        yield Call(web, caller, _credentials(request), key, named, form)


Asking = Annotated[Call, Depends(_asking)]
Doing = Annotated[Call, Depends(_doing)]
Sending = Annotated[Call, Depends(_sending)]


def _credentials(request: Request) -> Credentials:
    found = credentials_of(request)
    assert found is not None  # there is a caller
    return found


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


def file_of(form: FormData | None, name: str) -> UploadFile:
    part = form.get(name) if form is not None else None
    if not isinstance(part, UploadFile):
        raise InvalidError(f"the form has no file {name!r}: send one")
    return part


def text_of(form: FormData | None, name: str, default: str | None = None) -> str:
    part: Any = form.get(name, default) if form is not None else default
    if not isinstance(part, str):
        raise InvalidError(f"the form has no text {name!r}: send one")
    return part
