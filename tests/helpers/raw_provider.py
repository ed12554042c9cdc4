"""A provider's end of the wire without our code and without FLARE's client: it says whatever a test wants it to say.

It holds a real certificate of the market and speaks FLARE's frames over a WebSocket of its own making.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgpack
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.utils import decode_payload, encode_payload
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.utils.fed_utils import fobs_initialize
from nvflare.private.fed.utils.identity_utils import IdentityAsserter

from databazaar.federation.guest import ANSWER, ASK, CHANNEL, CODE, HERE, NUMBER
from databazaar.federation.onboarding import load_kit

DATA, HELLO, READY, PING = 1, 4, 5, 6
PREFIX = struct.Struct(">IHBBHHHH")
CHUNK, FINAL = 1, 2
STREAM, CHUNKS = "sm__STREAM", "sm__DATA"
Headers = dict[str, Any]


def sfm(kind: int, headers: Headers | None = None, payload: bytes = b"") -> bytes:
    """One of FLARE's frames."""
    head = b"" if headers is None else msgpack.packb(headers)
    return PREFIX.pack(PREFIX.size + len(head) + len(payload), len(head), kind, 0, 0, 1, 17, 1) + head + payload


class RawProvider:
    """`name` is whom it claims to be on the wire; the certificate is the kit's."""

    def __init__(self, kit: Path, name: str | None = None) -> None:
        self.kit = load_kit(kit)
        self.name = name or self.kit.provider
        self.token = ("", "")
        self._numbers = itertools.count(int(time.time() * 1e6))
        startup = kit / "startup"
        context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        plain = socket.create_connection((self.kit.host, self.kit.port), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname=self.kit.host)
        self._asserter = IdentityAsserter(str(startup / "client.key"), str(startup / "client.crt"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def hello(self) -> None:
        """Opens the WebSocket and says who it is."""
        self.upgrade()
        self.send(sfm(HELLO, None, msgpack.packb({"endpoint_name": self.name, "timestamp": 0.0, "fqcn": self.name})))
        self.receive(READY)

    def upgrade(self) -> bytes:
        self.socket.sendall(
            b"GET /f3 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._exactly(1)
        return answer

    def send(self, frame: bytes) -> None:
        self.announce(len(frame))
        self.socket.sendall(frame)

    def announce(self, length: int) -> None:
        """The head of a WebSocket message with this length, under a mask of zeros."""
        self.socket.sendall(struct.pack(">BBQ", 0x82, 0x80 | 127, length) + bytes(4))

    def receive(self, kind: int = DATA, seconds: float = 20.0) -> tuple[Headers, bytes]:
        """The next frame of this kind that the server sends; ConnectionError once it has hung up."""
        self.socket.settimeout(seconds)
        while True:
            first, second = self._exactly(2)
            length = second & 127
            if length > 125:
                length = int.from_bytes(self._exactly(2 if length == 126 else 8), "big")
            frame = self._exactly(length)
            if first & 15 == 8:
                raise ConnectionError("closed")
            if first & 15 == 2 and frame[6] == kind:
                head = PREFIX.unpack_from(frame)[1]
                headers = msgpack.unpackb(frame[16 : 16 + head]) if head else {}
                return headers, frame[16 + head :]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not (got := self.socket.recv(count - len(found))):
                raise ConnectionError("the server hung up")
            found += got
        return found

    def closed(self, seconds: float = 20.0) -> bool:
        """Does the server hang up?"""
        try:
            while True:
                self.receive(seconds=seconds)
        except TimeoutError:
            return False
        except OSError:
            return True

    def headers(self, channel: str, topic: str, **more: Any) -> Headers:
        """Those of a request to the server, as FLARE's client sends them."""
        values: Headers = {
            "channel": channel,
            "topic": topic,
            "msg_type": "req",
            "origin": self.name,
            "from": self.name,
        }
        values |= {"destination": "server", "to": "server", "reply_expected": False, "req_id": os.urandom(8).hex()}
        values |= {"route": [[self.name, time.time()]], "payload_encoding": "bytes", "payload_len": 0}
        found = {f"cn__{key}": value for key, value in values.items()}
        found |= {"client_name": self.kit.provider, "__token__": self.token[0]}
        found |= {"__token_signature__": self.token[1]}
        return {**found, **more}

    def ask(self, topic: str, payload: Any, **headers: Any) -> Message:
        """A request on FLARE's main channel, and the reply."""
        message = Message({}, payload)
        encode_payload(message)
        head = self.headers("task", topic, cn__reply_expected=True, **headers) | message.headers
        body = message.payload
        self.send(sfm(DATA, head, b"".join(body) if isinstance(body, list) else body or b""))
        while True:
            found, raw = self.receive()
            if found.get("cn__req_id") in (head["cn__req_id"], [head["cn__req_id"]]):
                reply = Message(found, raw)
                decode_payload(reply)
                return reply

    def register(self) -> tuple[str, str]:
        """Registers as the kit's provider and returns the token and its signature."""
        fobs_initialize()
        challenge = self.ask("challenge", None, cn=self.kit.provider, nonce="x")
        proof = Shareable()
        proof["cert"] = self._asserter.cert_data
        proof["signature"] = self._asserter.sign_common_name(nonce=challenge.payload["nonce"])
        proof["cn"] = self.kit.provider
        who = {"client_type": "regular", "client_ip": "127.0.0.1", "project_name": self.kit.market}
        reply = self.ask("register", proof, **who)
        if not reply.payload:
            raise PermissionError(str(reply.headers))
        self.token = reply.payload["__token__"], reply.payload["__token_signature__"]
        return self.token

    def ready(self) -> None:
        self.stream(HERE, b"1")

    def stream(self, topic: str, body: bytes, **more: Any) -> None:
        """A stream of one chunk; `more` overrides any of its headers."""
        self.send(self.chunk(topic, body, **more))

    def chunk(self, topic: str, body: bytes, **more: Any) -> bytes:
        head = {"ch": CHANNEL, "tp": topic, "sz": len(body), "id": next(self._numbers), "dt": FINAL, "sq": 0, "os": 0}
        head |= {"rs": False, "op": True, "cs": 1024 * 1024, "ws": 16 * 1024 * 1024}
        values = {f"sm__{key}": value for key, value in head.items()}
        return sfm(DATA, self.headers(STREAM, CHUNKS, **{**values, **more}), body)

    def answer(self, number: str, body: bytes, **more: Any) -> None:
        self.stream(ANSWER, body, **{NUMBER: number, CODE: "", **more})

    def question(self, seconds: float = 20.0) -> tuple[str, bytes]:
        """The next question's number and its text, read to its end."""
        text = b""
        while True:
            headers, payload = self.receive(seconds=seconds)
            if headers.get("sm__tp") == ASK:
                text += payload
                if headers["sm__dt"] == FINAL:
                    return headers[NUMBER], text


@contextlib.contextmanager
def joined(kit: Path) -> Iterator[RawProvider]:
    """Connected, registered and ready."""
    with RawProvider(kit) as provider:
        provider.hello()
        provider.register()
        provider.ready()
        yield provider


class ServerMemory:
    """What the market's server holds, and the most that it has held since this was made; in bytes."""

    def __init__(self, market: Path) -> None:
        self._folder = Path("/proc") / (market / "server.lock").read_text()
        (self._folder / "clear_refs").write_text("5")
        self.at_first = self._read("VmRSS")

    @property
    def grown(self) -> int:
        return self._read("VmHWM") - self.at_first

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
