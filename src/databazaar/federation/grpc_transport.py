"""The way of consumers on the server's machine: their questions go to the market's server, which asks the providers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

from databazaar.errors import BazaarError
from databazaar.federation.enrolment import OperatorFolder, operator_folder
from databazaar.federation.frames import Body, ChunkAssembler, Header, WireError, decode_frame, encode_frame
from databazaar.federation.transport import Failures, Lost, Replies, Transport
from databazaar.federation.wire import LOCAL, SOCKET, body_frames, client_options, grpc

_GRACE = 5.0
_LONGEST_PATH = 100


class LocalServer:
    """The market's server on this machine, over a socket in its folder that only its owner may enter."""

    def __init__(self, market: OperatorFolder) -> None:
        self._market = market
        path = str(market.server / SOCKET)
        self._folder: int | None = None
        if len(os.fsencode(path)) > _LONGEST_PATH:  # than a socket's may be: it has a short name for who has it open
            self._folder = os.open(market.server, os.O_RDONLY)
            path = f"/proc/self/fd/{self._folder}/{SOCKET}"
        local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        self._channel = grpc.secure_channel(f"unix:{path}", local, client_options())

    def command(self, header: Header, timeout: float) -> Header:
        """What the server says to this; a BazaarError where it says nothing."""
        try:
            command = self._channel.unary_unary(f"/{LOCAL}/Command")
            return decode_frame(command(encode_frame(header), timeout=timeout))[0]
        except grpc.RpcError:
            raise BazaarError(f"the server of {self._market.name} is not up: run `bazaar federation up`") from None

    def ask(self, header: Header, payload: Body) -> Any:
        """The frames that come of a question."""
        return self._channel.stream_stream(f"/{LOCAL}/Ask")(frame for _, frame in body_frames(header, payload))

    def close(self) -> None:
        self._channel.close()
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


class GrpcTransport(Transport):
    """The providers connected to a market's server on this machine, for one thread at a time. A request that finds
    the server gone raises `BazaarError`, and the next one connects anew. Consumers take turns; without a name this
    process is one. A large reply is the memory in which it came down, not bytes."""

    def __init__(self, folder: Path, consumer: str = "") -> None:
        self._folder = folder
        self._consumer = consumer or f"process {os.getpid()}"
        self._server: LocalServer | None = None
        self._max_bytes = 0

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        server = self._open()
        if len(payload) > self._max_bytes:
            raise BazaarError(
                f"a payload of {len(payload)} bytes is over the limit of {self._max_bytes}: "
                "start the server with a higher one"
            )
        asked = {"names": list(dict.fromkeys(names)), "timeout": timeout, "consumer": self._consumer}
        call = server.ask(asked, payload)
        try:
            return self._collect(call)
        except (grpc.RpcError, WireError, StopIteration, OverflowError):
            self.close()
            raise BazaarError(
                f"the server of the market in {self._folder} went away: bring it up again and resume the run"
            ) from None
        finally:
            call.cancel()  # interrupted half-way, it is not to be waited for

    def connected(self) -> list[str]:
        try:
            return [str(name) for name in self._open().command({"op": "status"}, _GRACE)["connected"]]
        except BazaarError:
            self.close()
            raise

    def _collect(self, frames: Iterator[bytes]) -> tuple[Replies, Failures]:
        replies: Replies = {}
        landings: dict[str, ChunkAssembler] = {}
        while True:
            header, piece = decode_frame(next(frames))
            match header["op"]:
                case "done":
                    failures = {str(name): Lost(code) for name, code in header["failures"].items()}
                    return {name: reply for name, reply in replies.items() if name not in failures}, failures
                case "piece" if header["size"] <= len(piece):
                    replies[str(header["name"])] = bytes(piece)
                case "piece":
                    name, size = str(header["name"]), int(header["size"])
                    landing = landings.setdefault(name, ChunkAssembler(size))
                    if landing.add(piece):
                        replies[name] = cast("bytes", landings.pop(name).body)

    def _open(self) -> LocalServer:
        if self._server is None:
            server = LocalServer(operator_folder(self._folder))
            try:
                self._max_bytes = int(server.command({"op": "status"}, _GRACE)["max_bytes"])
            except BaseException:
                server.close()
                raise
            self._server = server
        return self._server

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
