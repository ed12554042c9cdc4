"""What goes over gRPC: one frame a message, on the providers' streams and between a consumer and the server.

gRPC keeps the order, holds back who sends faster than the other reads, and refuses longer messages.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Self

from databazaar.federation.frames import (
    FRAME_HEADER,
    PIECE,
    Body,
    ChunkAssembler,
    Header,
    WireError,
    decode_frame,
    encode_frame,
)

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is said in our own words
import grpc as grpc

SERVICE, LOCAL = "databazaar.Federation", "databazaar.Local"
"""What providers may call, and what consumers may on the server's own machine."""
SOCKET = "server.sock"
"""Where the server listens for consumers of its machine, in its folder that only its owner may enter."""
REPLACED = "another connection of the same name took its place"
"""What a provider is told whose certificate is used for a newer connection."""
_FRAMES_PER_SECOND, _BURST = 200.0, 1000.0

Options = list[tuple[str, int]]


def options() -> Options:
    """gRPC's settings for either side. A connection over which nothing has come for twice 20 seconds is given up."""
    return [
        ("grpc.max_receive_message_length", PIECE + 2 * FRAME_HEADER),
        ("grpc.max_metadata_size", 8192),
        ("grpc.absolute_max_metadata_size", 16384),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
    ]


def client_options() -> Options:
    """No connection is shared with another channel of the process, tried again by gRPC, or made through a proxy."""
    more = ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)
    return [*options(), *more]


def body_frames(header: Header, body: Body) -> Iterator[tuple[int, bytes]]:
    """The frames of a message, each with how many bytes of the body are sent by then."""
    view = memoryview(body)
    for at in range(0, max(1, len(view)), PIECE):
        piece = view[at : at + PIECE]
        yield at + len(piece), encode_frame({**header, "size": len(view), "at": at}, piece)


def receive_body(frames: Iterator[bytes], max_bytes: int) -> tuple[Header, Body]:
    """One message: the header of its first frame, and the body that all of them make."""
    header, piece = decode_frame(next(frames))
    size = header.get("size")
    if not isinstance(size, int) or not 0 <= size <= max_bytes:
        raise WireError(f"a message is over the limit of {max_bytes} bytes")
    if size <= len(piece):
        return header, bytes(piece)
    landing = ChunkAssembler(size)
    while not landing.add(piece):
        piece = decode_frame(next(frames))[1]
    return header, landing.body


class Outbox:
    """Frames that wait to be sent, few of them: who puts one in waits while gRPC holds back. gRPC takes them out."""

    def __init__(self, most: int = 2) -> None:
        self._most = most
        self._frames: deque[bytes] = deque()
        self._change = threading.Condition()
        self.closed = self._ended = False

    def put(self, frame: bytes, seconds: float | None = None) -> bool:
        """False where nobody takes them any more, or took none for so many seconds: then nobody is expected to."""
        with self._change:
            room = self._change.wait_for(lambda: self.closed or len(self._frames) < self._most, seconds)
            if not room:
                self.close()
            if self.closed:
                return False
            self._frames.append(frame)
            self._change.notify_all()
            return True

    def end(self) -> None:
        """No more are put in; those that are there are still taken."""
        with self._change:
            self._ended = True
            self._change.notify_all()

    def close(self) -> None:
        with self._change:
            self.closed = True
            self._frames.clear()
            self._change.notify_all()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        with self._change:
            self._change.wait_for(lambda: self.closed or self._ended or bool(self._frames))
            if not self._frames:
                raise StopIteration
            self._change.notify_all()
            return self._frames.popleft()


class ProviderStream:
    """One provider's stream. Questions take turns, a piece each; gRPC asks for the next when one is on its way."""

    def __init__(self, name: str, serial: int) -> None:
        self.name, self.serial = name, serial
        self._queue: deque[tuple[str, Iterator[tuple[int, bytes]]]] = deque()
        self._taken: dict[str, int] = {}
        self._change = threading.Condition()
        self.why = ""
        """Why it was closed; empty while it is not."""
        self._allowance, self._filled_at = _BURST, time.monotonic()

    def send(self, number: str, payload: Body, seconds: float) -> None:
        frames = body_frames({"op": "ask", "number": number, "seconds": seconds}, payload)
        with self._change:
            if self.why:
                raise ConnectionError(self.why)
            self._taken[number] = 0
            self._queue.append((number, frames))
            self._change.notify_all()

    def taken(self, number: str) -> int:
        """Bytes of this question that were sent."""
        return self._taken.get(number, 0)

    def stop(self, number: str) -> None:
        """The question is over: no more of it is sent, and the provider need not go on with it."""
        with self._change:
            if self._taken.pop(number, None) is not None and not self.why:
                self._queue = deque(waiting for waiting in self._queue if waiting[0] != number)
                self._queue.append(("", iter([(0, encode_frame({"op": "over", "number": number}))])))
                self._change.notify_all()

    def close(self, why: str) -> None:
        with self._change:
            self.why = self.why or why
            self._queue.clear()
            self._change.notify_all()

    def frames(self) -> Iterator[bytes]:
        """What gRPC sends, until the connection is closed."""
        yield encode_frame({"op": "welcome"})
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self.why or self._queue))
                if self.why:
                    return
                number, frames = self._queue.popleft()
            if (found := next(frames, None)) is None:
                continue
            yield found[1]
            with self._change:
                if number in self._taken:
                    self._taken[number] = found[0]
                    self._queue.append((number, frames))

    def pause(self) -> None:
        """Waits a moment where many frames came that belong to nothing: reading them costs more than sending them."""
        now = time.monotonic()
        self._allowance = min(_BURST, self._allowance + (now - self._filled_at) * _FRAMES_PER_SECOND) - 1.0
        self._filled_at = now
        if self._allowance < 0:
            time.sleep(-self._allowance / _FRAMES_PER_SECOND)
