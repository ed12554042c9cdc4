"""The operator's way to its own server: a local socket that no other user of the machine can reach.

It lies in the server's folder, which only its owner may enter; a token in a file beside it is asked for as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from databazaar.errors import BazaarError
from databazaar.federation.frames import Channel, ClosedError, Header
from databazaar.federation.kits import PRIVATE, write_json

RELAY_FILE, RELAY_SOCKET = "relay.json", "relay.sock"
_HELLO_SECONDS = 5.0
_LONGEST_PATH = 100
Obey = Callable[[Channel, Header, bytes], None]
"""Does what a header says with its body, which is the memory in which it came down where it is large."""


class Relay:
    """The server's end: obeys who shows the token."""

    def __init__(self, obey: Obey, max_bytes: int) -> None:
        self._obey = obey
        self._max_bytes = max_bytes
        self._token = secrets.token_hex(32)

    def start(self, folder: Path) -> None:
        (folder / RELAY_SOCKET).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        with reachable(folder) as path:
            listener.bind(path)
        (folder / RELAY_SOCKET).chmod(PRIVATE)
        listener.listen()
        write_json(folder / RELAY_FILE, {"token": self._token, "pid": os.getpid(), "max_bytes": self._max_bytes})
        threading.Thread(target=self._accept, args=(listener,), name="relay", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._converse, args=(connection,), name="operator", daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        channel = Channel(connection, max_bytes=0)
        try:
            channel.settimeout(_HELLO_SECONDS)
            hello, _ = channel.receive()
            if not secrets.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
                return
            channel.max_bytes = self._max_bytes
            channel.settimeout(None)
            while True:
                header, body = channel.land()
                self._obey(channel, header, cast("bytes", body))
                del body  # or it would be held until the next request
        except (ClosedError, TimeoutError, TypeError, KeyError, ValueError):
            pass
        finally:
            channel.close()


def dial(folder: Path, otherwise: str) -> Channel:
    """The operator's end, on the server in this folder; `otherwise` is the sentence where there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        relay: dict[str, Any] = json.loads((folder / RELAY_FILE).read_text())
        connection.settimeout(10.0)
        with reachable(folder) as path:
            connection.connect(path)
        channel = Channel(connection, int(relay["max_bytes"]))
        channel.send({"op": "hello", "token": str(relay["token"])})
    except (OSError, ValueError, KeyError, TypeError, ClosedError):
        connection.close()
        raise BazaarError(otherwise) from None
    return channel


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[str]:
    """The socket's path, by a short name where the folder's own is longer than a socket's may be."""
    path = str(folder / RELAY_SOCKET)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/{RELAY_SOCKET}"
    finally:
        os.close(descriptor)
