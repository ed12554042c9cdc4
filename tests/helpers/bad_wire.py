"""A wire between a provider and its server that somebody else holds: it can be slow, cut, silent, or garble what it
carries. It sees TLS alone, and can only do what anybody on the way can do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

CHUNK = 16_384


@dataclass
class Wire:
    """Listens on a port of its own and passes bytes on to `port`, as long as it is let.

    `passes` sees every chunk, with whether it goes to the server, and gives what is passed on in its place.
    """

    port: int
    passes: Callable[[bytes, bool], bytes] | None = None
    silent: threading.Event = field(default_factory=threading.Event)
    """While set, connections stay open and nothing arrives."""
    carried: int = 0
    recorded: list[bytes] = field(default_factory=list)
    """What each connection has sent to the server so far, the latest last."""
    _open: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.own_port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="wire", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Breaks every connection, wherever it is."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def cut_after(self, size: int) -> None:
        """Breaks them in the middle of a message, when so many more bytes have gone to the provider."""
        left = [size]

        def count(chunk: bytes, to_server: bool) -> bytes:
            left[0] -= 0 if to_server else len(chunk)
            if left[0] > 0:
                return chunk
            self.passes = None
            self.cut()
            return b""

        self.passes = count

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.port))
                self._open += [near, far]
                self.recorded.append(b"")
                for pair, to_server in (((near, far), True), ((far, near), False)):
                    threading.Thread(
                        target=self._pump, args=(*pair, to_server, len(self.recorded) - 1), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, to_server: bool, place: int) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                while self.silent.is_set():
                    time.sleep(0.02)
                self.carried += len(chunk)
                if to_server:
                    self.recorded[place] += chunk
                if self.passes is not None:
                    chunk = self.passes(chunk, to_server)
                target.sendall(chunk)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
