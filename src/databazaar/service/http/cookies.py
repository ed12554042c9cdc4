"""Cookies of the hub: scripts cannot read them, and over TLS a browser sends them to this very host alone.

One of them says that somebody has signed in from this browser before, for one account: guesses of a password elsewhere
do not lock it out. It signs nobody in, and is worth only attempts at a password, which are bounded for each such
browser too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from fastapi import Response
from starlette.requests import HTTPConnection

from databazaar.files import alone, read_plain, write_whole
from databazaar.service.settings import Settings

SESSION, BROWSER, NOTICE, OIDC = "bazaar", "known", "notice", "bazaar-oidc"
KEY = "browsers.key"
LASTING = 180 * 24 * 3600
"""Seconds for which a browser is known."""


def cookie_name(settings: Settings, name: str = SESSION) -> str:
    """With the prefix `__Host-` a browser takes the cookie over TLS alone, and from this very host."""
    return f"__Host-{name}" if settings.secure else name


def set_cookie(response: Response, settings: Settings, name: str, value: str, seconds: int | None = None) -> None:
    """Other sites cannot post with it. Without `seconds` it lasts as long as the browser is open."""
    kept = cookie_name(settings, name)
    response.set_cookie(kept, value, seconds, path="/", secure=settings.secure, httponly=True, samesite="lax")


def delete_cookie(response: Response, settings: Settings, name: str) -> None:
    set_cookie(response, settings, name, "", 0)


def known_browser(request: HTTPConnection, settings: Settings, account: str) -> str:
    """The name of the browser, if this account has signed in from it; else nothing."""
    name, _, mark = request.cookies.get(cookie_name(settings, BROWSER), "").partition(".")
    known = bool(name) and hmac.compare_digest(mark.encode(), _mark(settings, account, name).encode())
    return name if known else ""


def remember_browser(response: Response, settings: Settings, account: str) -> None:
    """For a browser from which somebody has just signed in."""
    name = secrets.token_hex(16)
    set_cookie(response, settings, BROWSER, f"{name}.{_mark(settings, account, name)}", LASTING)


def _mark(settings: Settings, account: str, name: str) -> str:
    said = f"{account.strip().lower()}\0{name}"
    return hmac.new(_key(settings), said.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _key(settings: Settings) -> bytes:
    """Of the hub's folder; where there is none, a new one. Without the old one browsers are known again when they have
    signed in."""
    path = settings.keys / KEY
    settings.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(settings.keys / ".lock"):
        try:
            return read_plain(path, most=100)
        except FileNotFoundError:
            made = secrets.token_bytes(32)
            write_whole(path, made, mode=0o600)
            return made
