"""The one door of the market's server: FLARE's HTTP driver, with a limit on all that a stranger can make it hold.

Registered in FLARE before FLARE starts (`launch`), so there is no moment without it. A connection is known by the name
in its certificate. What it sends is looked at by `guest`, then handed to FLARE one frame at a time: whoever sends
faster than FLARE can take waits in its own socket, and nobody else with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from typing import Any

from aiohttp import WSMsgType, web
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.aio_http_driver import WS_PATH, AioHttpDriver, WsConnection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver

from databazaar.federation.guest import LARGEST, SMALL, Guest, House, UnwelcomeError, Verdict
from databazaar.federation.lobby import GREETING_SECONDS, Lobby
from databazaar.federation.processes import WINDOW

HOUSE = House()
"""What this process's doors know; the server's component fills it in when it starts."""
REGISTRATION_SECONDS = 60.0
"""How long a connection may stay whose provider is not registered."""
OUTBOX = 3 * WINDOW
"""Bytes that may wait to be sent to one connection."""
_FRAME_COST = 2048  # of what Python keeps for a frame that waits
_FRAMES_PER_SECOND, _BURST = 200.0, 1000.0

log = logging.getLogger(__name__)


class Seat(WsConnection):  # type: ignore[misc]
    """One connection and its guest."""

    def __init__(self, websocket: Any, guest: Guest, transport: asyncio.Transport, *more: Any) -> None:
        super().__init__(websocket, *more)
        self.guest = guest
        self.transport = transport
        self.registered_at = time.monotonic()
        self._waiting = 0
        self._allowance, self._filled_at = _BURST, time.monotonic()

    def overdue(self, now: float) -> bool:
        """Is there no reason left to keep this connection open?"""
        if self.guest.house.registered(self.guest.name):
            self.registered_at = now
        return self.guest.house.revoked(self.guest.name) or now - self.registered_at > REGISTRATION_SECONDS

    def pause(self) -> float:
        """Seconds to wait before the next small frame is read: many of them cost more than their bytes."""
        now = time.monotonic()
        self._allowance = min(_BURST, self._allowance + (now - self._filled_at) * _FRAMES_PER_SECOND) - 1.0
        self._filled_at = now
        return max(0.0, -self._allowance / _FRAMES_PER_SECOND)

    async def _async_send_frame(self, frame: Any) -> None:
        cost = len(frame) + _FRAME_COST
        if self._waiting + cost > OUTBOX:
            log.warning("%s does not read what it is sent: its connection is closed", self.guest.name)
            return self.transport.abort()
        self._waiting += cost
        try:
            await super()._async_send_frame(frame)
        finally:
            self._waiting -= cost


class Door(AioHttpDriver):  # type: ignore[misc]
    """FLARE's HTTP driver, as a server."""

    def __init__(self) -> None:
        super().__init__()
        self.house = HOUSE
        self._lobby = Lobby(self.house)
        _open_doors.append(self)

    def listen(self, connector: Any) -> None:
        self.connector = connector
        self.ssl_context = net_utils.get_ssl_context(connector.params, True)
        host, port = (connector.params.get(key.value) for key in (DriverParams.HOST, DriverParams.PORT))
        with socket.create_server((host, int(port)), backlog=128) as listener:
            self.aio_context.run_coro(self._serve(listener)).result()

    async def _serve(self, listener: socket.socket) -> None:
        self.app = web.Application()
        self.app.router.add_get(f"/{WS_PATH}", self._websocket_handler)
        self.runner = web.AppRunner(self.app, access_log=None, keepalive_timeout=GREETING_SECONDS)
        await self.runner.setup()
        tasks = [
            self.loop.create_task(self._lobby.receive(listener, self.runner.server, self.ssl_context)),
            self.loop.create_task(self._sweep()),
        ]
        try:
            await self.stop_event
        finally:
            for task in tasks:
                task.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for seat in list(self.connections.values()):
                if seat.overdue(now):
                    seat.transport.abort()

    def show_out(self, name: str, seconds: float = 5.0) -> bool:
        """Closes every connection of this name, from any thread. Are they closed?"""

        def close() -> None:
            for transport in self._lobby.of(name):
                transport.abort()

        self.loop.call_soon_threadsafe(close)
        until = time.monotonic() + seconds
        while any(seat.guest.name == name for seat in list(self.connections.values())):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    async def _websocket_handler(self, request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(max_msg_size=LARGEST + 1, compress=False, autoping=False)
        transport = request.transport
        name = self._lobby.seat(transport)
        await websocket.prepare(request)
        if transport is None or name is None:
            return websocket
        seat = Seat(websocket, Guest(name, self.house), transport, self.aio_context, self.connector, self.ssl_context)
        self.add_connection(seat)
        try:
            await self._converse(seat)
        except UnwelcomeError as why:
            log.warning("the connection of %s is closed: %s", name, why)
        finally:
            self.close_connection(seat)
            transport.abort()
        return websocket

    async def _converse(self, seat: Seat) -> None:
        manager, connection = seat.frame_receiver.conn_manager, seat.frame_receiver.conn
        async for message in seat.websocket:
            if message.type in (WSMsgType.PING, WSMsgType.PONG):
                if message.type == WSMsgType.PING:
                    await seat.websocket.pong(message.data)
                await asyncio.sleep(seat.pause())
                continue
            if message.type != WSMsgType.BINARY:
                raise UnwelcomeError(f"{message.type.name}: {seat.websocket.exception() or 'it sends no frames'}")
            if seat.closing:
                return
            frame = message.data
            verdict = seat.guest.judge(frame)
            if verdict is not Verdict.DROP:
                connection.last_activity = time.time()
                await self.loop.run_in_executor(
                    manager.frame_mgr_executor, manager.process_frame_task, connection, frame
                )
            if (verdict is not Verdict.ANSWER or len(frame) < SMALL) and (seconds := seat.pause()):
                await asyncio.sleep(seconds)


class Wall(TcpDriver):  # type: ignore[misc]
    """Where FLARE would have a second door, for processes of its own that we do not start."""

    def __init__(self) -> None:
        super().__init__()
        self._done = threading.Event()

    def listen(self, connector: Any) -> None:
        self.connector = connector
        self._done.wait()

    def connect(self, connector: Any) -> None:
        raise ConnectionError("the market's server connects to nobody")

    def shutdown(self) -> None:
        self._done.set()


_open_doors: list[Door] = []


def show_out(name: str) -> bool:
    """Closes every connection of this name. Are they closed?"""
    return bool(_open_doors) and all(door.show_out(name) for door in _open_doors)


def standing() -> bool:
    """Is this process's only way in a door of ours?"""
    from nvflare.fuel.f3 import communicator

    return bool(_open_doors) and set(communicator.driver_mgr.drivers.values()) == {Door, Wall}


def install() -> None:
    """Makes these the only drivers that FLARE knows in this process."""
    from nvflare.fuel.f3 import communicator

    communicator.driver_mgr.drivers.clear()
    communicator.driver_mgr.register(Door)
    communicator.driver_mgr.register(Wall)
    communicator.driver_loaded = True
