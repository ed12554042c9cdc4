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
    """Marks an endpoint that files are sent to: once its caller is known, `most_upload` bounds it, and not `most_body`.
    So it reads its body itself, after it has asked for the caller: what FastAPI reads for it comes before."""
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
        """Known once the request has found its endpoint, and its caller; nobody unknown sends more than a little."""
        large = getattr(scope.get("endpoint"), "takes_uploads", False) and scope.get("state", {}).get("organisation")
        return self.settings.most_upload + FORM if large else self.settings.most_body


def too_large(most: int) -> HTTPException:
    return HTTPException(413, f"this is larger than the {most} bytes that are taken here: send less")
