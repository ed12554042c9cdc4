"""Half-sent requests of strangers: a real server on this machine, which others still reach."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from databazaar.service.http.connections import Listener, server_of
from databazaar.service.settings import Settings
from web_server import bound, until

pytestmark = pytest.mark.process
HALF = b"GET / HTTP/1.1\r\nHost: hub\r\n"
PATIENCE = 30.0
NEVER = 3600.0


@contextmanager
def hub(proxy: str | None = None, **limits: Any) -> Iterator[int]:
    """The port of a server with these limits."""
    app = FastAPI()

    @app.get("/")
    def here() -> str:
        return "here"

    @app.post("/")
    async def heard(request: Request) -> int:
        return len(await request.body())

    settings = Settings(Path(), **limits)
    server = server_of(app, settings, proxy, timeout_graceful_shutdown=0)
    with bound() as (listening, _), Listener(listening, settings, proxy) as bounded:
        port: int = bounded.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bounded]})
        thread.start()
        until(lambda: server.started)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


def opened(port: int, address: str = "127.0.0.1", sent: bytes = HALF) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(address, 0))
    with suppress(ConnectionError):
        made.sendall(sent)
    return made


def is_closed(connection: socket.socket) -> bool:
    """Waits for the server to close it, or to answer."""
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


def answered(connection: socket.socket) -> int:
    """Reads one whole response, which may come in several segments."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status


def status(port: int, address: str) -> int:
    """The answer to an honest request; 0 where there is none."""
    asking = http.client.HTTPConnection("127.0.0.1", port, PATIENCE, source_address=(address, 0))
    try:
        asking.request("GET", "/")
        return asking.getresponse().status
    except (ConnectionError, http.client.BadStatusLine):
        return 0
    finally:
        asking.close()


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of them; there is no traceback in it."""
    assert not any(record.exc_info for record in caplog.records)
    return [record.message for record in caplog.records if record.name.startswith("databazaar")]


def test_a_strangers_half_sent_requests_shut_nobody_else_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), hub(connections=40, connections_of_one=20, head_seconds=NEVER) as port:
        with ExitStack() as stack:
            held = [stack.enter_context(opened(port)) for _ in range(20)]
            assert all(is_closed(stack.enter_context(opened(port))) for _ in range(50))
            assert status(port, "127.0.0.1") == 0
            assert status(port, "127.0.0.2") == 200
            for one in held:
                one.sendall(b"\r\n")  # the other half: none of them was cut
                assert answered(one) == 200
        until(lambda: status(port, "127.0.0.1") == 200)
    assert refusals(caplog) == ["1 connections were refused, and 20 are open"]


def test_many_addresses_have_a_limit_together_that_time_clears() -> None:
    with hub(connections=10, connections_of_one=5, head_seconds=0.5) as port, ExitStack() as stack:
        held = [stack.enter_context(opened(port, f"127.0.0.{2 + place % 5}")) for place in range(50)]
        assert all(is_closed(one) for one in held)
        assert status(port, "127.0.0.1") == 200


def test_a_proxy_has_many_clients() -> None:
    with hub("127.0.0.1", connections=10, connections_of_one=2, head_seconds=NEVER) as port, ExitStack() as stack:
        held = [stack.enter_context(opened(port)) for _ in range(9)]
        assert status(port, "127.0.0.1") == 200
        assert not any(_waits(one) for one in held)


def _waits(connection: socket.socket) -> bool:
    """Whether there is anything to read, if only that it was closed."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return False
    return True


def test_a_head_has_its_time_and_no_more_however_it_comes() -> None:
    whole, posted = HALF + b"\r\n", b"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: 4\r\n\r\nab"
    with hub(head_seconds=2.0) as port, ExitStack() as stack:
        silent, dripping, second, slow = (
            stack.enter_context(opened(port, sent=sent)) for sent in (b"", b"", whole, posted)
        )
        assert answered(second) == 200
        second.sendall(HALF)
        dripping.settimeout(0.05)
        assert _dripped(dripping)
        assert is_closed(silent) and is_closed(second)
        slow.sendall(b"cd")  # a body may take longer than a head
        assert answered(slow) == 200


def _dripped(connection: socket.socket) -> bool:
    """Whether the server closes a connection that sends a byte of a head every now and then."""
    for sign in HALF + b"x" * 600:
        try:
            connection.sendall(bytes([sign]))
            return connection.recv(1000) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False
