"""What every answer carries; which requests are not even looked at: another host's, another site's; and who asks: a
program by its bearer token, or a person by the cookie of a session, who must have meant to post."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Scope

from databazaar.service import credentials as tokens
from databazaar.service.caller import Caller
from databazaar.service.errors import DeniedError, UnknownCallerError
from databazaar.service.http.context import InWeb, Web, web_of
from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security_limits import address_of
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
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
NOBODY = "nobody known asks: sign in, or send a token as `Authorization: Bearer …`"
bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="An API token of an organisation, made under Tokens."
)


def headers_of(settings: Settings) -> dict[str, str]:
    """What every answer carries, unless an endpoint has set it itself."""
    return HEADERS | ({"Strict-Transport-Security": STRICT_TRANSPORT} if settings.secure else {})


def refuse_foreign(scope: Scope, settings: Settings) -> None:
    """Lets through what is meant for this hub, and what its own pages post."""
    headers, address = Headers(scope=scope), urlsplit(settings.address.lower())
    if headers.get("host", "").lower() != address.netloc and scope["path"] not in ANY_HOST:
        raise HTTPException(421, "this is another host's request: use the address that the operator has given")
    own = _own_page(headers, f"{address.scheme}://{address.netloc}")
    if scope["method"] not in SAFE and "authorization" not in headers and not own:
        raise HTTPException(403, "another site has sent this: open the hub's own page, and send it from there")


def _own_page(headers: Headers, origin: str) -> bool:
    """Browsers say where a form comes from. Under `no-referrer` some say `null`, of their own pages too: then the
    form's token alone decides."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    return headers.get("origin", "null").lower() in ("null", origin)


@dataclass(frozen=True)
class Credentials:
    """The secret that came with a request, of an API token or of a session. It is never shown or written down."""

    secret: str = field(repr=False)
    kind: Literal["api", "session"]


def credentials_of(request: HTTPConnection) -> Credentials | None:
    """A token goes before the cookie, which is not looked at then."""
    given = request.headers.get("authorization")
    if given is not None:
        scheme, _, secret = given.partition(" ")
        return Credentials(secret.strip(), "api") if scheme.lower() == "bearer" and secret.strip() else None
    secret = request.cookies.get(cookie_name(web_of(request).settings), "")
    return Credentials(secret, "session") if secret else None


def look_up(web: Web, credentials: Credentials) -> Caller:
    with web.database.read() as session:
        return tokens.caller_of(session, credentials.secret, credentials.kind)


async def caller_of(request: Request, web: InWeb, _: Annotated[object, Depends(bearer)] = None) -> Caller:
    """The caller, or UnknownCallerError. A person's POST must carry the token of its session's forms."""
    credentials = credentials_of(request)
    if credentials is None:
        raise UnknownCallerError(NOBODY)
    web.limits.token.take(tokens.digest_of(credentials.secret))
    try:
        caller = await run_in_threadpool(look_up, web, credentials)
    except UnknownCallerError:
        web.limits.strangers.take(address_of(request))
        raise
    request.state.organisation, request.state.caller = caller.slug, caller
    if credentials.kind == "session" and request.method not in SAFE:
        await require_csrf(request, credentials.secret)
    return caller


CallerOf = Annotated[Caller, Depends(caller_of)]
"""For endpoints: `def jobs(caller: CallerOf, web: InWeb)`."""


def csrf_token(secret: str) -> str:
    """What the forms of a session carry: nobody else can compute it, and it tells nothing about the session."""
    return hmac.new(secret.encode(), b"databazaar: forms", hashlib.sha256).hexdigest()


def csrf_of(request: HTTPConnection) -> str:
    """For a page's forms (field `csrf`) and for htmx (header `X-CSRF-Token`); empty where nobody has signed in."""
    credentials = credentials_of(request)
    return csrf_token(credentials.secret) if credentials is not None and credentials.kind == "session" else ""


async def require_csrf(request: Request, secret: str) -> None:
    given: object = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").startswith(FORMS):
        given = (await request.form()).get(CSRF_FIELD)
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(), csrf_token(secret).encode()):
        await request.close()  # and the files of its form
        raise DeniedError("this form is not of your session: load the page again, then send it again")
