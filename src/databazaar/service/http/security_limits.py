"""How often one may ask (a bucket of tokens for each address, account or token, in memory), how much a request may
carry, and how many of an organisation's may carry much at once."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databazaar.errors import BazaarError
from databazaar.service import files
from databazaar.service.caller import Caller
from databazaar.service.errors import TooManyError
from databazaar.service.http.context import Web

MOST_BUCKETS = 100_000
F = TypeVar("F", bound=Callable[..., Any])
FORM = 64 * 1024
"""What a form may have around its files."""


class RetryError(TooManyError):
    """Too many, and for how many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests: try again in {seconds} seconds")
        self.headers = {"Retry-After": str(seconds)}


@dataclass
class Buckets:
    """Each name may ask `burst` times at once, and `per_second` times in the long run. Who has not asked for the
    longest time is forgotten first: its bucket is full again by then.

    >>> at = [0.0]
    >>> buckets = Buckets(per_second=0.5, burst=2, clock=lambda: at[0])
    >>> buckets.take("a"), buckets.take("a"), buckets.take("b")
    (None, None, None)
    >>> buckets.take("a")
    Traceback (most recent call last):
    databazaar.service.http.security_limits.RetryError: too many requests: try again in 2 seconds
    >>> at[0] = 2.0
    >>> buckets.take("a")
    """

    per_second: float
    burst: float
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str) -> None:
        """Counts one request of `name`; raises RetryError where it is one too many."""
        with self._lock:
            at = self.clock()
            left, before = self._left.pop(name, (self.burst, at))
            left = min(self.burst, left + (at - before) * self.per_second)
            self._left[name] = (left - 1 if left >= 1 else left, at)
            if len(self._left) > MOST_BUCKETS:
                self._left.popitem(last=False)
        if left < 1:
            raise RetryError(math.ceil((1 - left) / self.per_second))

    def forget(self, name: str) -> None:
        """`name` has shown that it is welcome: its bucket is full again."""
        with self._lock:
            self._left.pop(name, None)


@dataclass
class Limits:
    """Attempts to sign in are bounded by `address`, by account at one address (`place`), and more loosely by `account`,
    wherever they come from. A browser from which the account's owner has signed in before has a bound of its own
    (`browser`) and no other, so nobody locks the owner out. `strangers` are requests with tokens that nobody knows,
    `token` is what a known one may ask."""

    address: Buckets = field(default_factory=lambda: Buckets(per_second=0.5, burst=20))
    place: Buckets = field(default_factory=lambda: Buckets(per_second=1 / 30, burst=10))
    account: Buckets = field(default_factory=lambda: Buckets(per_second=1 / 10, burst=100))
    browser: Buckets = field(default_factory=lambda: Buckets(per_second=1 / 30, burst=10))
    strangers: Buckets = field(default_factory=lambda: Buckets(per_second=1, burst=60))
    token: Buckets = field(default_factory=lambda: Buckets(per_second=50, burst=500))

    def sign_in(self, request: HTTPConnection, account: str = "", browser: str = "") -> None:
        """To be asked before a password, a link or a code is looked at; `account` is the e-mail address, if one is
        named, and `browser` one that its owner is known by."""
        account, address = account.strip().lower(), address_of(request)
        if browser:
            self.browser.take(f"{account} {browser}")
            return
        self.address.take(address)
        if account:
            self.place.take(f"{account} {address}")  # before the next: one address alone does not use that up
            self.account.take(account)

    def signed_in(self, request: HTTPConnection, account: str, browser: str = "") -> None:
        account = account.strip().lower()
        self.place.forget(f"{account} {address_of(request)}")
        self.browser.forget(f"{account} {browser}")


def address_of(request: HTTPConnection) -> str:
    """Who asks, as far as the network tells; one household of IPv6 is one address."""
    return household(request.client.host if request.client else "")


def household(host: str) -> str:
    """
    >>> household("192.0.2.7"), household("2001:db8:1:2:3:4:5:6"), household("testclient")
    ('192.0.2.7', '2001:db8:1:2::/64', 'testclient')
    >>> household("::ffff:192.0.2.7")  # what a socket for both says of IPv4
    '192.0.2.7'
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


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
