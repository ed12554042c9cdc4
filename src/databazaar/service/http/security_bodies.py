"""How much a request may carry, whether or not it says so before; and how many of an organisation's may carry much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databazaar.errors import BazaarError
from databazaar.service import files
from databazaar.service.caller import Caller
from databazaar.service.errors import TooManyError
from databazaar.service.http.context import Web

F = TypeVar("F", bound=Callable[..., Any])
FORM = 64 * 1024
"""What a form may have around its files."""


def takes_messages(endpoint: F) -> F:
    """Marks an endpoint that large bodies are sent to: once its caller is known, `most_upload` bounds it, and not
    `most_body`. So it reads its body itself, after it has asked for the caller: what FastAPI reads for it comes
    before."""
    endpoint.takes_messages = True  # type: ignore[attr-defined]
    return endpoint


def takes_uploads(endpoint: F) -> F:
    """The same for one that keeps the files that it is sent, as far as the organisation's quota goes."""
    endpoint.takes_uploads = True  # type: ignore[attr-defined]
    return takes_messages(endpoint)


class BoundedBodies:
    """Counts what comes in, and ends a request that sends too much. A large body is taken only while its organisation
    has few others under way and has room for it; else it is refused before any of it is kept."""

    def __init__(self, app: ASGIApp, web: Web) -> None:
        self.app, self.web, self.settings = app, web, web.settings
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared and (not declared.isdigit() or int(declared) > self.settings.most_upload + FORM):
            raise too_large(self.settings.most_upload)
        size, count, admitted = int(declared or 0), 0, ""

        async def counted() -> Message:
            nonlocal count, admitted
            message = await receive()
            count += len(message.get("body", b""))
            most = self._most(scope)
            if max(count, size) > most:
                raise too_large(most)
            if max(count, size) > self.settings.most_body and not admitted:
                try:
                    admitted = await self._admit(scope, max(count, size))
                except BazaarError:
                    await self._drain(message, receive)
                    raise
            return message

        try:
            await self.app(scope, counted, send)
        finally:
            self._under_way -= Counter([admitted] if admitted else [])

    def _most(self, scope: Scope) -> int:
        """Known once the request has found its endpoint, and its caller; nobody unknown sends more than a little."""
        large = getattr(scope.get("endpoint"), "takes_messages", False) and "caller" in scope.get("state", {})
        return scope["state"].get("room", self.settings.most_upload + FORM) if large else self.settings.most_body

    async def _admit(self, scope: Scope, size: int) -> str:
        """The organisation under which a large body is counted; from here on it has no more room than its quota."""
        caller: Caller = scope["state"]["caller"]
        if self._under_way[caller.organisation_id] >= self.settings.uploads:
            raise TooManyError(f"{self.settings.uploads} uploads of yours are under way: try again when one is done")
        self._under_way[caller.organisation_id] += 1
        try:
            if getattr(scope["endpoint"], "takes_uploads", False):
                left = await run_in_threadpool(self._room_left, caller)
                files.refuse_over_quota(self.settings, left, size - FORM)
                scope["state"]["room"] = min(left, self.settings.most_upload) + FORM
        except BaseException:
            self._under_way -= Counter([caller.organisation_id])
            raise
        return caller.organisation_id

    def _room_left(self, caller: Caller) -> int:
        with self.web.database.read() as session:
            return files.room_left(session, caller, self.settings)

    async def _drain(self, message: Message, receive: Receive) -> None:
        """Takes the rest of a body and drops it: who still sends does not read the answer."""
        count = 0
        while message.get("more_body") and count <= self.settings.most_upload:
            message = await receive()
            count += len(message.get("body", b""))


def too_large(most: int) -> HTTPException:
    return HTTPException(413, f"this is larger than the {most} bytes that are taken here: send less")
