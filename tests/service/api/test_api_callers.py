"""Who asks, as a request says it, without an app around it: tokens, cookies and the tokens of forms."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from databazaar.service.errors import DeniedError
from databazaar.service.http.cookies import SESSION, cookie_name, delete_cookie, set_cookie
from databazaar.service.http.security import (
    HEADERS,
    SAFE,
    Credentials,
    credentials_of,
    csrf_of,
    csrf_token,
    headers_of,
    refuse_foreign,
    require_csrf,
)
from databazaar.service.settings import Settings


def request(headers: dict[str, str], *, secure: bool = False, body: bytes = b"") -> Request:
    settings = Settings(Path("nowhere"), secure=secure)
    app = SimpleNamespace(state=SimpleNamespace(web=SimpleNamespace(settings=settings)))
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "path": "/", "headers": named, "app": app}, receive)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"authorization": "Bearer abc"}, Credentials("abc", "api")),
        ({"authorization": "bEARER  abc "}, Credentials("abc", "api")),
        ({"authorization": "Bearer abc", "cookie": "bazaar=s"}, Credentials("abc", "api")),
        ({"authorization": "Bearer"}, None),
        ({"authorization": "Bearer  "}, None),
        ({"authorization": "Basic abc"}, None),
        ({"authorization": "Basic abc", "cookie": "bazaar=s"}, None),
        ({"authorization": "", "cookie": "bazaar=s"}, None),
        ({"cookie": "bazaar=s"}, Credentials("s", "session")),
        ({"cookie": "bazaar="}, None),
        ({"cookie": "__Host-bazaar=s"}, None),
        ({"cookie": "__Host-bazaar=s", "secure": "yes"}, Credentials("s", "session")),
        ({"cookie": "bazaar=s", "secure": "yes"}, None),
    ],
)
def test_whose_secret_came_with_a_request(headers: dict[str, str], found: Credentials | None) -> None:
    secure = "secure" in headers
    asked = request({name: value for name, value in headers.items() if name != "secure"}, secure=secure)
    assert credentials_of(asked) == found
    session = found is not None and found.kind == "session"
    assert csrf_of(asked) == (csrf_token("s") if session else "")


def test_a_secret_is_not_shown() -> None:
    assert repr(Credentials("abc", "api")) == "Credentials(kind='api')"
    assert csrf_token("abc") == hmac.new(b"abc", b"databazaar: forms", "sha256").hexdigest()
    assert frozenset({"GET", "HEAD", "OPTIONS"}) == SAFE


OWN = {"host": "market.example"}


def refusal(
    method: str, headers: dict[str, str], *, path: str = "/v1/me", address: str = "https://Market.example"
) -> int:
    """The status that a request is refused with, or 0."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    try:
        refuse_foreign(
            {"type": "http", "method": method, "path": path, "headers": named},
            Settings(Path("nowhere"), address=address),
        )
    except HTTPException as refused:
        return refused.status_code
    return 0


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        (OWN, True),
        ({"host": "MARKET.example"}, True),
        ({"host": "market.example:8000"}, False),
        ({"host": "evil.example"}, False),
        ({"host": ""}, False),
        ({}, False),
    ],
)
def test_a_request_is_for_this_host_whatever_it_asks(headers: dict[str, str], fine: bool, method: str) -> None:
    assert refusal(method, headers) == (0 if fine else 421)
    assert refusal(method, headers, path="/healthz") == 0
    assert refusal(method, headers, path="/healthz/x") == (0 if fine else 421)


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({}, True),
        ({"origin": "null"}, True),
        ({"origin": "NULL"}, True),
        ({"origin": "https://market.example"}, True),
        ({"origin": "https://MARKET.example"}, True),
        ({"origin": "http://market.example"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "https://evil.example", "authorization": "Bearer abc"}, True),
        ({"sec_fetch_site": "same-origin"}, True),
        ({"sec_fetch_site": "none"}, True),
        ({"sec_fetch_site": "same-site"}, False),
        ({"sec_fetch_site": "cross-site"}, False),
        ({"sec_fetch_site": ""}, False),
        ({"sec_fetch_site": "same-origin", "origin": "https://evil.example"}, True),
        ({"sec_fetch_site": "cross-site", "origin": "https://market.example"}, False),
    ],
)
def test_a_post_is_of_the_hubs_own_page_or_of_a_program(headers: dict[str, str], fine: bool) -> None:
    for method in ("POST", "DELETE", "PUT"):
        assert refusal(method, OWN | headers) == (0 if fine else 403)
    for method in SAFE:
        assert refusal(method, OWN | headers) == 0


def test_what_every_answer_carries() -> None:
    assert HEADERS == {
        "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        "Cache-Control": "no-store",
    }
    assert headers_of(Settings(Path("nowhere"))) == HEADERS
    secure = headers_of(Settings(Path("nowhere"), secure=True))
    assert secure == HEADERS | {"Strict-Transport-Security": "max-age=31536000"}


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("headers", "body", "fine"),
    [
        ({"x_csrf_token": csrf_token("s")}, b"", True),
        ({"x_csrf_token": csrf_token("t")}, b"", False),
        ({"x_csrf_token": ""}, b"", False),
        ({}, b"", False),
        ({"content_type": FORM}, f"csrf={csrf_token('s')}".encode(), True),
        ({"content_type": FORM}, f"csrf={csrf_token('t')}".encode(), False),
        ({"content_type": FORM}, b"other=1", False),
        ({"content_type": "text/plain"}, f"csrf={csrf_token('s')}".encode(), False),
        ({"content_type": FORM, "x_csrf_token": "no"}, f"csrf={csrf_token('s')}".encode(), False),
    ],
)
def test_a_form_carries_the_token_of_its_session(headers: dict[str, str], body: bytes, fine: bool) -> None:
    asked = request(headers, body=body)
    if fine:
        asyncio.run(require_csrf(asked, "s"))
        return
    with pytest.raises(DeniedError, match="this form is not of your session"):
        asyncio.run(require_csrf(asked, "s"))


@pytest.mark.parametrize("secure", [False, True])
def test_the_cookie_of_a_session(secure: bool) -> None:
    settings, response = Settings(Path("nowhere"), secure=secure), Response()
    set_cookie(response, settings, SESSION, "secret")
    delete_cookie(response, settings, SESSION)
    begun, ended = (cookie.split("; ") for cookie in response.headers.getlist("set-cookie"))
    name = "__Host-bazaar" if secure else "bazaar"
    assert cookie_name(settings) == name
    flags = {"httponly", "path=/", "samesite=lax"} | ({"secure"} if secure else set())
    assert begun[0] == f"{name}=secret" and {part.lower() for part in begun[1:]} == flags
    assert ended[0] == f'{name}=""' and flags <= {part.lower() for part in ended[1:]} and "Max-Age=0" in ended
