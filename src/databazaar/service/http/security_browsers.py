"""Browsers that somebody has signed in from before: guesses of a password elsewhere do not lock them out.

The cookie says nothing but that, for one account. It signs nobody in, and is worth only attempts at a password, which
are bounded for each such browser too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from fastapi import Response
from starlette.requests import HTTPConnection

from databazaar.files import alone, read_plain, write_whole
from databazaar.service.http.cookies import BROWSER, cookie_name, set_cookie
from databazaar.service.settings import Settings

KEY = "browsers.key"
LASTING = 180 * 24 * 3600
"""Seconds for which a browser is known."""


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
