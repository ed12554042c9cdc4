"""Who asks, as a request says it, without an app around it: tokens, cookies and the tokens of forms."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from databazaar.service import credentials as tokens
from databazaar.service.caller import Caller
from databazaar.service.credentials import digest_of
from databazaar.service.errors import DeniedError, UnknownCallerError
from databazaar.service.http import security
from databazaar.service.http.cookies import SESSION, cookie_name, delete_cookie, set_cookie
from databazaar.service.http.security import (
    HEADERS,
    NOBODY,
    SAFE,
    Credentials,
    caller_of,
    credentials_of,
    csrf_of,
    csrf_token,
    headers_of,
    refuse_foreign,
    require_csrf,
)
from databazaar.service.settings import Settings


def request(headers: dict[str, str], *, secure: bool = False, body: bytes = b"", method: str = "POST") -> Request:
    settings = Settings(Path("nowhere"), secure=secure)
    app = SimpleNamespace(state=SimpleNamespace(web=SimpleNamespace(settings=settings)))
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": method, "path": "/", "headers": named, "app": app, "client": ("10.0.0.7", 1)}
    return Request(scope, receive)


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


ACME = Caller("o1", "acme", False, True, False, frozenset({"read"}))


class Counting:
    """A limit that notes who has taken of it."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def take(self, key: str) -> None:
        self.taken.append(key)


class AskedWeb:
    """A hub that knows two secrets and notes who was counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits = SimpleNamespace(token=Counting(), strangers=Counting())
        monkeypatch.setattr(security, "look_up", lambda web, given: self.look_up(web, given))

    def look_up(self, web: object, given: Credentials) -> Caller:
        assert web is self
        if given not in (Credentials("t", "api"), Credentials("s", "session")):
            raise UnknownCallerError("unknown")
        return ACME

    def ask(self, asked: Request) -> Caller:
        return asyncio.run(caller_of(asked, self))  # type: ignore[arg-type]

    def counted(self) -> tuple[list[str], list[str]]:
        return self.limits.token.taken, self.limits.strangers.taken


def test_who_asks_is_counted_by_the_secret_and_who_is_unknown_by_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    web = AskedWeb(monkeypatch)
    with pytest.raises(UnknownCallerError, match=NOBODY.split(":")[0]):
        web.ask(request({}))
    assert web.counted() == ([], [])
    asked = request({"authorization": "Bearer t"})
    assert web.ask(asked) is ACME and (asked.state.organisation, asked.state.caller) == ("acme", ACME)
    assert web.counted() == ([digest_of("t")], [])
    with pytest.raises(UnknownCallerError, match="unknown"):
        web.ask(request({"authorization": "Bearer no"}))
    assert web.counted() == ([digest_of("t"), digest_of("no")], ["10.0.0.7"])


def test_a_persons_post_carries_its_forms_token_and_a_programs_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    web, cookie = AskedWeb(monkeypatch), {"cookie": "bazaar=s"}
    for method in SAFE:
        assert web.ask(request(cookie, method=method)) is ACME
    for method in ("POST", "DELETE"):
        with pytest.raises(DeniedError, match="not of your session"):
            web.ask(request(cookie, method=method))
        assert web.ask(request({**cookie, "x_csrf_token": csrf_token("s")}, method=method)) is ACME
        assert web.ask(request({"authorization": "Bearer t"}, method=method)) is ACME


def test_a_secret_is_looked_up_as_what_it_came_as(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a transaction that only reads."""
    found: list[object] = []
    web = SimpleNamespace(database=SimpleNamespace(read=lambda: nullcontext("session")))

    def known(*given: object) -> Caller:
        found.append(given)
        return ACME

    monkeypatch.setattr(tokens, "caller_of", known)
    assert security.look_up(web, Credentials("s", "session")) is ACME  # type: ignore[arg-type]
    assert found == [("session", "s", "session")]


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
