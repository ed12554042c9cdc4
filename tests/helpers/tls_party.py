"""A party at the other end of a TLS connection, honest or not, that notes what it is sent."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


class TlsServer:
    """Listens on loopback, greets whoever completes the handshake, and notes what came."""

    def __init__(self, context: ssl.SSLContext, port: int = 0) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[bytes] = []
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.settimeout(10)
            try:
                with plain, self._context.wrap_socket(plain, server_side=True) as secure:
                    if said := secure.recv(200):
                        self.heard.append(said)
                        secure.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            except OSError as reason:
                self.refused.append(str(reason))


def plain_server(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """A server that asks its clients for nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
