"""Frames on a local socket: a small JSON header and an opaque body, both with a hard size limit.

    | header length, 4 bytes | body length, 8 bytes | header, JSON | body |

Both lengths are checked before anything is allocated. Nothing is ever unpickled. A timeout is for one piece of a body
and not for all of it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from typing import Any

from databazaar.federation.payloads import Body, pieces

MAX_BYTES = 512 * 1024 * 1024
MAX_HEADER = 1024 * 1024
_LENGTHS = struct.Struct(">IQ")

Header = dict[str, Any]


class ClosedError(ConnectionError):
    """The other side is gone, or broke the format; the connection is of no more use."""


class Channel:
    """One end of a local connection. `send` may be called from several threads, `receive` from one."""

    def __init__(self, connection: socket.socket, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, header: Header, body: Body = b"") -> None:
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > MAX_HEADER or len(body) > self.max_bytes:
            raise ValueError(f"a frame of {len(body)} bytes is over the limit of {self.max_bytes}")
        try:
            with self._sending:
                self._socket.sendall(_LENGTHS.pack(len(text), len(body)) + text)
                for _, piece in pieces(body):
                    self._socket.sendall(piece)
        except OSError as error:
            raise ClosedError(str(error)) from error

    def receive(self) -> tuple[Header, bytes]:
        header, size = self._header()
        return header, self._exactly(size)

    def settimeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _header(self) -> tuple[Header, int]:
        """The next header, and how many bytes follow it."""
        head, size = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        if head > MAX_HEADER or size > self.max_bytes:
            raise ClosedError("a frame is over the size limit")
        try:
            header = json.loads(self._exactly(head))
        except (ValueError, RecursionError):
            raise ClosedError("a frame has no JSON header") from None
        if not isinstance(header, dict):
            raise ClosedError("a frame has no JSON header")
        return header, size

    def _exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        self._fill(memoryview(buffer))
        return bytes(buffer)

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            try:
                got = self._socket.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as error:
                raise ClosedError(str(error)) from error
            if not got:
                raise ClosedError("the other side closed the connection")
            at += got
