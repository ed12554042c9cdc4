"""Who asks: a program by its bearer token, or a person by the cookie of a session; and that a person meant to post."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Request, Response
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from databazaar.service import credentials as tokens
from databazaar.service.caller import Caller
from databazaar.service.errors import DeniedError, UnknownCallerError
from databazaar.service.http.context import InWeb, Web, web_of
from databazaar.service.http.security_limits import address_of
from databazaar.service.settings import Settings

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER, CSRF_FIELD = "X-CSRF-Token", "csrf"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
NOBODY = "nobody known asks: sign in, or send a token as `Authorization: Bearer …`"
bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="An API token of an organisation, made under Tokens."
)


@dataclass(frozen=True)
class Credentials:
    """The secret that came with a request, of an API token or of a session. It is never shown or written down."""

    secret: str
    kind: Literal["api", "session"]

    def __repr__(self) -> str:
        return f"Credentials({self.kind})"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.secret.encode()).hexdigest()


def cookie_name(settings: Settings) -> str:
    """With the prefix `__Host-` a browser takes the cookie over TLS alone, and from this very host."""
    return "__Host-bazaar" if settings.secure else "bazaar"


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
    web.limits.token.take(credentials.digest)
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


def begin_session(response: Response, settings: Settings, secret: str) -> None:
    """Signs the browser in: scripts cannot read the cookie, and other sites cannot post with it."""
    response.set_cookie(cookie_name(settings), secret, httponly=True, secure=settings.secure, samesite="lax", path="/")


def end_session(response: Response, settings: Settings) -> None:
    response.delete_cookie(cookie_name(settings), httponly=True, secure=settings.secure, samesite="lax", path="/")
