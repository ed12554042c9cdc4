"""What goes over gRPC: one frame a message, on the providers' streams and between a consumer and the server.

    | header length, 4 bytes | header, JSON | a piece of a body, up to 1 MiB |

gRPC keeps the order, holds back who sends faster than the other reads, and refuses longer messages. Nothing is ever
unpickled.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from databazaar.federation.payloads import PIECE, Body, ChunkAssembler, pieces

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what fails is said in our own words
import grpc as grpc

MAX_BYTES = 512 * 1024 * 1024
"""Bytes of one message, unless the server or a provider says otherwise."""
SERVICE, LOCAL = "databazaar.Federation", "databazaar.Local"
"""What providers may call, and what consumers may on the server's own machine."""
SOCKET = "server.sock"
"""Where the server listens for consumers of its machine, in its folder that only its owner may enter."""
REPLACED = "another connection of the same name took its place"
"""What a provider is told whose certificate is used for a newer connection."""
_HEADER = 64 * 1024
_LENGTH = struct.Struct(">I")
_PLANES = 4

Header = dict[str, Any]
Options = list[tuple[str, int]]


class WireError(Exception):
    """The other side breaks the format: its stream is to be ended. The text says why."""


def options() -> Options:
    """gRPC's settings for either side. A connection over which nothing has come for twice 20 seconds is given up."""
    return [
        ("grpc.max_receive_message_length", PIECE + 2 * _HEADER),
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


def encode_frame(header: Header, piece: Body = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, piece))


def decode_frame(message: bytes) -> tuple[Header, memoryview]:
    size = int(_LENGTH.unpack_from(message)[0]) if len(message) >= _LENGTH.size else _HEADER
    start = _LENGTH.size + size
    if size > _HEADER or start > len(message) or len(message) - start > PIECE + _HEADER:
        raise WireError("a frame lies about its length")
    try:
        header = json.loads(message[_LENGTH.size : start])
    except (ValueError, RecursionError):
        raise WireError("a frame has no JSON header") from None
    if not isinstance(header, dict):
        raise WireError("a frame has no JSON header")
    return header, memoryview(message)[start:]


def body_frames(header: Header, body: Body, pack: bool = False) -> Iterator[tuple[int, bytes]]:
    """The frames of a message, each with how much of the body is sent with it; their headers get
    the body's `size`, and where the piece is `at`."""
    header = {**header, "size": len(body)}
    if not len(body):
        yield 0, encode_frame({**header, "at": 0})
    for at, piece in pieces(body):
        placed = {**header, "at": at}
        if pack and len(body) > PIECE and len(packed := packed_piece(piece)) < len(piece):
            yield at + len(piece), encode_frame({**placed, "plain": len(piece)}, packed)
        else:
            yield at + len(piece), encode_frame(placed, piece)


def plain_piece(header: Header, piece: Body) -> bytes:
    """The piece of a frame as it was before it was packed, if it was; never more than a piece."""
    if (plain := header.get("plain")) is None:
        return bytes(piece)
    if not isinstance(plain, int) or not 0 < plain <= PIECE:
        raise WireError("a packed piece is of no size that a piece may be")
    return unpacked_piece(piece, plain)


def packed_piece(piece: Body) -> bytes:
    """Deflated by planes: every fourth byte stands together, so that float32's signs and exponents do, which are the
    part of a vector that can be compressed."""
    data = np.frombuffer(piece, np.uint8)
    return zlib.compress(b"".join(data[start::_PLANES].tobytes() for start in range(_PLANES)), level=1)


def unpacked_piece(packed: Body, size: int) -> bytes:
    """Exactly so many bytes, and never more than one beyond that in memory."""
    inflating = zlib.decompressobj()
    try:
        planes = inflating.decompress(packed, size + 1)
    except zlib.error:
        raise WireError("a packed piece cannot be unpacked") from None
    if len(planes) != size or not inflating.eof or inflating.unused_data:
        raise WireError("a packed piece is not as long as it says")
    data, at = np.empty(size, np.uint8), 0
    for start in range(_PLANES):
        count = (size - start + _PLANES - 1) // _PLANES
        data[start::_PLANES] = np.frombuffer(planes, np.uint8, count, at)
        at += count
    return data.tobytes()


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
        self._closed = self._ended = False

    def put(self, frame: bytes, seconds: float | None = None) -> bool:
        """False where nobody takes them any more, or took none for so many seconds: then nobody is expected to."""
        with self._change:
            room = self._change.wait_for(lambda: self._closed or len(self._frames) < self._most, seconds)
            if not room:
                self.close()
            if self._closed:
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
            self._closed = True
            self._frames.clear()
            self._change.notify_all()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        with self._change:
            self._change.wait_for(lambda: self._closed or self._ended or bool(self._frames))
            if not self._frames:
                raise StopIteration
            self._change.notify_all()
            return self._frames.popleft()
