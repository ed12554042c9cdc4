"""Connections from their first byte to their first word: few at a time, and none for long.

Whoever has no certificate of the market gets no further than this. Where more connections come than there is room for,
the oldest of the address with the most is let go, so one address cannot keep the others out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import defaultdict
from functools import partial
from typing import Any

from nvflare.fuel.hci.security import get_certificate_common_name

from databazaar.federation.guest import House

HANDSHAKES = 128
"""Connections that may be without a certificate at one time."""
HANDSHAKE_SECONDS = 10.0
GREETING_SECONDS = 15.0
"""How long a connection may take from its certificate to its first word."""
PER_NAME = 4
"""Connections that one certificate may have at one time: FLARE's client, its successor, and a check of the kit."""

log = logging.getLogger(__name__)


class Lobby:
    """All connections of one listener, by the name in their certificate."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._shaking: dict[str, list[asyncio.Task[None]]] = defaultdict(list)
        self._names: dict[asyncio.BaseTransport, str] = {}
        self._timers: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}

    def of(self, name: str) -> list[Any]:
        """The open connections of this name, oldest first."""
        for transport in [one for one in self._names if one.is_closing()]:
            del self._names[transport]
            self._timers.pop(transport).cancel()
        return [transport for transport, whose in self._names.items() if whose == name]

    def name(self, transport: Any) -> str | None:
        """Whose connection this is, by its certificate; None for one that is not welcome, and closed with that."""
        if transport in self._names:
            return self._names[transport]
        certificate = transport.get_extra_info("peercert")
        name: str | None = get_certificate_common_name(certificate) if certificate else None
        if not name or self._house.revoked(name):
            log.warning("a connection of %s is refused", name)
            transport.abort()
            return None
        others = self.of(name)
        if len(others) >= PER_NAME:
            log.warning("%s has too many connections: the oldest is closed", name)
            others[0].abort()
        self._names[transport] = name
        clock = asyncio.get_running_loop().call_later
        self._timers[transport] = clock(GREETING_SECONDS, transport.abort)
        return name

    def seat(self, transport: Any) -> str | None:
        """Like `name`, for a connection that has come to its first word, which stops its clock."""
        if transport is None or (name := self.name(transport)) is None:
            return None
        self._timers[transport].cancel()
        return name

    async def receive(self, listener: socket.socket, factory: Any, context: ssl.SSLContext) -> None:
        """Lets connections in for as long as the task lives."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                plain, address = await loop.sock_accept(listener)
            except OSError as reason:
                log.warning("no connection can be taken: %s", reason)
                await asyncio.sleep(0.5)
                continue
            self._make_room()
            host = str(address[0])
            task = loop.create_task(self._shake_hands(plain, factory, context))
            self._shaking[host].append(task)
            task.add_done_callback(partial(self._shaken, host))

    def _make_room(self) -> None:
        if sum(map(len, self._shaking.values())) >= HANDSHAKES:
            max(self._shaking.values(), key=len).pop(0).cancel()

    def _shaken(self, host: str, task: asyncio.Task[None]) -> None:
        if task in self._shaking[host]:
            self._shaking[host].remove(task)
        if not self._shaking[host]:
            del self._shaking[host]

    async def _shake_hands(self, plain: socket.socket, factory: Any, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(
                factory, plain, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS, ssl_shutdown_timeout=2.0
            )
        except (OSError, ssl.SSLError):
            return plain.close()
        except asyncio.CancelledError:
            plain.close()
            raise
        self.name(transport)
