"""The market's server: a gRPC server that providers dial, and that consumers on its machine ask through.

    python -m databazaar.federation.market_server FOLDER MAX_BYTES

A provider calls `Join` and holds that stream: questions come down it and answers go up, piece by piece. Who it is says
its certificate, which is looked at when the stream begins and whenever a revocation list changes. Consumers call `Ask`
on a socket in the server's folder, which nobody else on the machine can enter. No code is shipped to anybody.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import logging.handlers
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation import pki
from databazaar.federation.enrolment import operator_folder
from databazaar.federation.enrolment_files import read_capacities
from databazaar.federation.exchange import Exchange
from databazaar.federation.fair_queue import LONGEST_NAME
from databazaar.federation.frames import Body, Header, WireError, decode_frame, encode_frame
from databazaar.federation.revocations import Revoked
from databazaar.federation.tls import ServerCertificate
from databazaar.federation.wire import (
    LOCAL,
    REPLACED,
    SERVICE,
    SOCKET,
    Outbox,
    ProviderStream,
    body_frames,
    grpc,
    options,
    receive_body,
)

LOCK = "server.lock"
"""The file that the server's process holds locked as long as it lives, with its process id."""
MOST_PROVIDERS = 1000
_HANDSHAKE_SECONDS, _IDLE_SECONDS, _SWEEP_SECONDS = 10, 30, 1.0
_HEAR_SECONDS = 10.0
"""How long a consumer may leave a frame of its answers unread."""

log = logging.getLogger(__name__)


class MarketServer:
    """Both listeners, the providers that are connected, and the exchange between them."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._market, self._max_bytes = operator_folder(folder), max_bytes
        home = self._market.server
        self._revoked, self._capacities = Revoked(home), read_capacities(home)
        self._connections: dict[str, ProviderStream] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._numbers: dict[str, ProviderStream] = {}
        self._exchange = Exchange(
            self._send,
            self._connections.__contains__,
            max_bytes,
            ended=self._ended,
            capacity=lambda name: self._capacities.get(name, 1),
            taken=lambda number: held.taken(number) if (held := self._numbers.get(number)) else 0,
        )
        limits = [
            ("grpc.max_concurrent_streams", 4),
            ("grpc.server_handshake_timeout_ms", 1000 * _HANDSHAKE_SECONDS),
            ("grpc.max_connection_idle_ms", 1000 * _IDLE_SECONDS),
            ("grpc.max_allowed_incoming_connections", 4 * MOST_PROVIDERS),
            ("grpc.so_reuseport", 0),
        ]
        stream, single = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
        joining = {"Join": stream(self._join), "Hello": single(self._hello)}
        self._outside = _server(SERVICE, joining, MOST_PROVIDERS + 100, limits)
        self._inside = _server(LOCAL, {"Ask": stream(self._ask), "Command": single(self._command)}, 1000)

    def start(self) -> None:
        """Listens for providers, then for consumers: a consumer that can ask can ask all providers."""
        certificate = ServerCertificate(self._market.server / "startup")
        credentials = grpc.dynamic_ssl_server_credentials(
            certificate.current(), certificate.renewed, require_client_authentication=True
        )
        self._outside.add_secure_port(f"[::]:{self._market.port}", credentials)
        self._outside.start()
        os.chdir(self._market.server)  # because a socket's path may not be long
        Path(SOCKET).unlink(missing_ok=True)
        os.umask(0o077)
        local = grpc.local_server_credentials(grpc.LocalConnectionType.UDS)
        self._inside.add_secure_port(f"unix:{SOCKET}", local)
        self._inside.start()
        threading.Thread(target=self._sweep, name="revocations", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        for connection in list(self._connections.values()):
            connection.close("the server stops")
        for server in (self._inside, self._outside):
            server.stop(1.0).wait()
        Path(SOCKET).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Ends the streams of those whose certificate was revoked meanwhile, and takes new capacities."""
        while not self._stopping.wait(_SWEEP_SECONDS):
            with contextlib.suppress(BazaarError):  # a file that cannot be read changes nothing
                self._capacities = read_capacities(self._market.server)
                self._exchange.capacities_changed()
            for connection in list(self._connections.values()):
                if why := self._revoked.why(connection.name, connection.serial, connected=True):
                    log.warning("%s is put out: %s", connection.name, why)
                    self._leave(connection, why)

    # Providers

    def _admit(self, context: Any) -> tuple[str, int]:
        """Name and serial number of the certificate that TLS has checked; others are refused."""
        seen = context.auth_context()
        try:
            certificate = x509.load_pem_x509_certificate(seen["x509_pem_cert"][0])
        except (LookupError, ValueError):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "there is no certificate")
        name = pki.common_name(certificate.subject)
        why = self._revoked.why(name, certificate.serial_number) if name else "the certificate has no name"
        if seen.get("ssl_tls_version") != [b"TLSv1.3"]:
            why = why or "the connection is not of TLS 1.3"
        if why:
            log.warning("a connection of %s is refused: %s", name[:100], why)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return name, certificate.serial_number

    def _hello(self, _request: bytes, context: Any) -> bytes:
        """For a provider that looks whether all is well: the time."""
        self._admit(context)
        return encode_frame({"time": dt.datetime.now(dt.UTC).isoformat()})

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        connection = ProviderStream(*self._admit(context))
        if not context.add_callback(lambda: self._leave(connection, "it has left")):
            return
        with self._lock:
            before = self._connections.get(connection.name)
            self._connections[connection.name] = connection
        if before is not None:
            log.warning("%s: %s", connection.name, REPLACED)
            before.close(REPLACED)
        log.info("%s is connected", connection.name)
        threading.Thread(target=self._listen, args=(connection, messages), name=connection.name, daemon=True).start()
        yield from connection.frames()
        context.abort(grpc.StatusCode.ABORTED, connection.why)

    def _leave(self, connection: ProviderStream, why: str) -> None:
        with self._lock:
            if self._connections.get(connection.name) is connection:
                del self._connections[connection.name]
                log.info("%s is not connected any more: %s", connection.name, why)
        connection.close(why)

    def _listen(self, connection: ProviderStream, messages: Iterator[bytes]) -> None:
        why = "it has left"
        try:
            for message in messages:
                if not self._hear(connection.name, message):
                    connection.pause()
        except WireError as wrong:
            why = str(wrong)
            log.warning("the connection of %s is closed: %s", connection.name, why)
        except Exception:  # what gRPC raises where a stream is broken is of no known kind
            log.info("the stream of %s is broken", connection.name)
        self._leave(connection, why)

    def _hear(self, name: str, message: bytes) -> bool:
        """One frame of a provider; whether anybody waited for it."""
        header, piece = decode_frame(message)
        if header.get("op") != "answer":
            raise WireError("it sends what is no answer")
        number, size, code = (header.get(key) for key in ("number", "size", "code"))
        return self._exchange.take(name, number, size, code, bytes(piece))

    def _send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        connection = self._connections[name]
        self._numbers[number] = connection
        connection.send(number, payload, seconds)

    def _ended(self, number: str) -> None:
        if (connection := self._numbers.pop(number, None)) is not None:
            connection.stop(number)

    # Consumers

    def _ask(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Asks, and passes the answers on; a consumer that goes away ends its question."""
        outbox = Outbox(4)
        context.add_callback(outbox.close)
        try:
            header, payload = receive_body(messages, self._max_bytes)
            asking = partial(self._exchange_for, header, payload, outbox)
        except (WireError, StopIteration, OverflowError) as wrong:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(wrong))
        threading.Thread(target=asking, name="ask", daemon=True).start()
        del header, payload, asking  # or the question would be held as long as its answers are read
        yield from outbox

    def _exchange_for(self, header: Header, payload: Body, outbox: Outbox) -> None:
        def deliver(name: str, size: int, data: bytes) -> None:
            outbox.put(encode_frame({"op": "piece", "name": name, "size": size}, data), _HEAR_SECONDS)

        try:
            replies, failures = self._exchange.ask(
                [str(name) for name in header["names"]],
                payload,  # type: ignore[arg-type]
                float(header["timeout"]),
                str(header["consumer"])[:LONGEST_NAME],
                deliver,
                lambda: not outbox.closed,
            )
            for name, reply in replies.items():
                for _, frame in body_frames({"op": "piece", "name": name}, reply):
                    outbox.put(frame, _HEAR_SECONDS)
            outbox.put(encode_frame({"op": "done", "failures": failures}), _HEAR_SECONDS)
        except ConnectionError:
            log.info("a consumer is gone, and its question is over")
        except Exception:
            log.exception("a question failed")
        finally:
            outbox.end()

    def _command(self, request: bytes, context: Any) -> bytes:
        try:
            return encode_frame(self._obey(decode_frame(request)[0]))
        except (WireError, BazaarError, KeyError) as wrong:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(wrong))
            raise

    def _obey(self, header: Header) -> Header:
        match header["op"]:
            case "status":
                return {
                    "connected": sorted(self._connections),
                    "queues": {name: asdict(queue) for name, queue in self._exchange.queues().items()},
                    "max_bytes": self._max_bytes,
                }
            case "revoke":
                name = str(header["name"])
                if (connection := self._connections.get(name)) is not None:
                    self._leave(connection, "the name is revoked")
                return {"name": name, "closed": bool(self._revoked.why(name, 0))}
        raise WireError("this is no command")


def _server(service: str, methods: dict[str, Any], most: int, more: Any = ()) -> Any:
    handler = grpc.method_handlers_generic_handler(service, methods)
    threads = ThreadPoolExecutor(most, thread_name_prefix=service)
    return grpc.server(threads, [handler], options=[*options(), *more], maximum_concurrent_rpcs=most)


def main(folder: Path, max_bytes: int) -> None:
    """The life of the server's process, which inherits the lock that `server` took."""
    (folder / LOCK).write_text(str(os.getpid()))
    handler = logging.handlers.RotatingFileHandler(
        folder / "server" / "log.txt", maxBytes=5_000_000, backupCount=3, encoding="utf-8"
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(message)s")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    server = MarketServer(folder, max_bytes)
    server.start()
    done.wait()
    server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
