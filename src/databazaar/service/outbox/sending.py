"""One signed POST to an address that somebody else has chosen: it must lead outside, and follows no redirect.

The name is looked up once, every address that it has is checked, and the connection goes to the one that was checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PATIENCE = 10.0
"""Seconds for an attempt in all."""


@dataclass(frozen=True)
class Parcel:
    """One event on its way to one webhook."""

    id: str
    url: str
    secret: str = field(repr=False)
    event: str
    body: bytes


Send = Callable[[Parcel, bool], bool]
"""Sends a parcel, to a private address too if that is allowed; whether it has arrived."""


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """What the header Bazaar-Signature says: HMAC-SHA256 over the timestamp, a point and the body."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def post(parcel: Parcel, private: bool = False) -> bool:
    """Whether the other side has taken it, with any status from 200 to 299."""
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "databazaar",
        "Bazaar-Event": parcel.event,
        "Bazaar-Delivery": parcel.id,
        "Bazaar-Timestamp": timestamp,
        "Bazaar-Signature": signature_of(parcel.secret, timestamp, parcel.body),
    }
    parts = urlsplit(parcel.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with contextlib.closing(_connection(parcel.url, private)) as connection, _at_most(PATIENCE, connection.sock):
            connection.request("POST", path, parcel.body, headers)
            return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _connection(url: str, private: bool) -> http.client.HTTPConnection:
    """Connected to an address that was checked."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = checked_address(host, port, private)
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    plain = socket.create_connection(address, timeout=PATIENCE)
    try:
        with _at_most(PATIENCE, plain):
            context = ssl.create_default_context() if secure else None
            connection.sock = plain if context is None else context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    return connection


def checked_address(host: str, port: int, private: bool) -> tuple[str, int]:
    """The first address of a host, if all that it has are public: an OSError where one is not."""
    found = [entry[4] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        if not private and not is_public(str(address[0])):
            raise OSError(f"{host} leads to an address that is not public")
    return str(found[0][0]), port


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet.

    >>> [is_public(a) for a in ("93.184.216.34", "127.0.0.1", "10.1.2.3", "::ffff:127.0.0.1", "169.254.169.254")]
    [True, False, False, False, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    inner = _inner(ip) if isinstance(ip, ipaddress.IPv6Address) else None
    public = ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified)
    return is_public(str(inner)) if inner is not None else public


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address of the old kind that one of the new kind leads to."""
    if ip in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


@contextlib.contextmanager
def _at_most(seconds: float, connected: socket.socket) -> Iterator[None]:
    """Hangs up after so long, however slowly the other side goes on."""

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
