"""How often one may ask: a bucket of tokens for each address, account or token, in memory."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from databazaar.service.errors import TooManyError

MOST_BUCKETS = 100_000


class RetryError(TooManyError):
    """Too many, and for how many seconds."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests: try again in {seconds} seconds")
        self.seconds = seconds


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
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
