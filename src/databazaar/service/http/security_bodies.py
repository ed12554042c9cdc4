"""How much a request may carry, whether or not it says so before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databazaar.service.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
FORM = 64 * 1024
"""What a form may have around its files."""


def takes_uploads(endpoint: F) -> F:
    """Marks an endpoint that files are sent to: `most_upload` bounds it, and not `most_body`. It must ask for its
    caller before it reads the form."""
    endpoint.takes_uploads = True  # type: ignore[attr-defined]
    return endpoint


class BoundedBodies:
    """Counts what comes in, and ends a request that sends too much."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared and (not declared.isdigit() or int(declared) > self.settings.most_upload + FORM):
            raise too_large(self.settings.most_upload)
        count = 0

        async def counted() -> Message:
            nonlocal count
            message = await receive()
            count += len(message.get("body", b""))
            most = self._most(scope)
            if count > most or (declared and int(declared) > most):
                raise too_large(most)
            return message

        await self.app(scope, counted, send)

    def _most(self, scope: Scope) -> int:
        """Known once the request has found its endpoint; nothing reads a body before."""
        large = getattr(scope.get("endpoint"), "takes_uploads", False)
        return self.settings.most_upload + FORM if large else self.settings.most_body


def too_large(most: int) -> HTTPException:
    return HTTPException(413, f"this is larger than the {most} bytes that are taken here: send less")
