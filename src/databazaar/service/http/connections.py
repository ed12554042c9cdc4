"""How many connections a hub holds, and for how long without a request: uvicorn has no limit for either."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import time
from collections import Counter
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from databazaar.service.http.security_limits import household
from databazaar.service.settings import Settings

PATIENCE = 10
"""Seconds that requests under way have when the hub stops."""
QUIET = 60.0
"""Seconds between two lines of the log about connections that were refused."""
log = logging.getLogger(__name__)


def server_of(app: FastAPI, settings: Settings, proxy: str | None = None, **options: Any) -> uvicorn.Server:
    """A server whose requests have whole heads in time; `options` are uvicorn's own."""

    class Timed(TimedHeads):
        seconds = settings.head_seconds

    config = uvicorn.Config(
        app,
        http=Timed,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy or "",
        **{"timeout_graceful_shutdown": PATIENCE, **options},
    )
    return uvicorn.Server(config)


class TimedHeads(H11Protocol):
    """Cuts a connection whose next request has no whole head in time: `seconds` after the connection was made, or after
    the first byte of a later request. Between requests uvicorn itself waits for five seconds."""

    seconds: float
    _cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """h11 is idle until a head is whole. More of half a head gives no more time."""
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self._cut is None:
            self._cut = self.loop.call_later(self.seconds, self.transport.abort)

    def _rest(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


class Listener(socket.socket):
    """A listening socket that closes at once what is one connection too many, in all or from one address. A proxy is no
    such address: its clients are many."""

    def __init__(self, listening: socket.socket, settings: Settings, proxy: str | None = None) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most, self._most_of_one = min(settings.connections, files // 2), settings.connections_of_one
        self._proxies = [ipaddress.ip_network(one.strip(), strict=False) for one in (proxy or "").split(",") if one]
        self._open: Counter[str] = Counter()
        self._refused, self._said = 0, -QUIET

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that is not one too many; BlockingIOError where none waits, as asyncio expects."""
        while True:
            found, address = super().accept()
            who = household(address[0])
            if self._open.total() < self._most and (self._open[who] < self._most_of_one or self._is_proxy(address[0])):
                return _Counted(found, self._open, who), address
            found.close()
            self._refused += 1
            if time.monotonic() >= self._said + QUIET:
                log.warning("%d connections were refused, and %d are open", self._refused, self._open.total())
                self._refused, self._said = 0, time.monotonic()

    def _is_proxy(self, host: str) -> bool:
        return any(ipaddress.ip_address(host) in network for network in self._proxies)


class _Counted(socket.socket):
    """A connection that is counted among those of its address until it is closed."""

    def __init__(self, found: socket.socket, counts: Counter[str], who: str) -> None:
        super().__init__(found.family, found.type, found.proto, fileno=found.detach())
        self._counts, self._who, self._counted = counts, who, True
        counts[who] += 1

    def close(self) -> None:
        super().close()
        if self._counted:
            self._counted = False
            self._counts[self._who] -= 1
            if not self._counts[self._who]:
                del self._counts[self._who]
