"""What every answer carries, and which requests are not even looked at: another host's, another site's."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databazaar.service.http.security_callers import SAFE
from databazaar.service.settings import Settings

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
STRICT_TRANSPORT = "max-age=31536000"
ANY_HOST = frozenset({"/healthz"})
"""Asked by monitoring, under any host name."""


class SecureAnswers:
    """Puts the headers on every answer; one that an endpoint has set itself stays."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.headers = HEADERS | ({"Strict-Transport-Security": STRICT_TRANSPORT} if settings.secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, sent if scope["type"] == "http" else send)


class OwnRequests:
    """Lets through what is meant for this hub, and what its own pages post."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        address = urlsplit(settings.address)
        self.host, self.origin = address.netloc.lower(), f"{address.scheme}://{address.netloc}".lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if headers.get("host", "").lower() != self.host and scope["path"] not in ANY_HOST:
                raise HTTPException(421, "this is another host's request: use the address that the operator has given")
            if scope["method"] not in SAFE and "authorization" not in headers and not self._own_page(headers):
                raise HTTPException(403, "another site has sent this: open the hub's own page, and send it from there")
        await self.app(scope, receive, send)

    def _own_page(self, headers: Headers) -> bool:
        """Browsers say where a form comes from. Under `no-referrer` some say `null`, of their own pages too: then the
        form's token alone decides."""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        return headers.get("origin", "null").lower() in ("null", self.origin)
