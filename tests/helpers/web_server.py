"""A hub's app behind a real uvicorn, in a thread of the test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def bound(port: int = 0) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens at a free port, or at this one, and its address."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        yield listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def serving(app: FastAPI, listening: socket.socket) -> Iterator[None]:
    """While the block runs the app answers there. Streams that are open at its end are cut."""
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def until(holds: Callable[[], bool], patience: float = 30.0) -> None:
    """Waits until something holds."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)
