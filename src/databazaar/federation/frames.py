"""Frames: a small JSON header and bytes. Large messages go in frames with pieces of 1 MiB.

    | header length, 4 bytes | header, JSON | bytes |

Providers' streams and the ask of a consumer are frames over gRPC, one a message. A bundle is a frame with the bytes of
several parties, which a hub, its processes and a consumer's arbiter send each other. All lengths are checked before
anything is allocated, and nothing is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

PIECE = 1024 * 1024
"""Bytes of a piece: one message of gRPC's at the most."""
MAX_BYTES = 512 * 1024 * 1024
"""Bytes of one message, unless the server or a provider says otherwise."""
MAX_HEADER, FRAME_HEADER = 1024 * 1024, 64 * 1024
"""Bytes of the header of a bundle, and of a frame over gRPC."""
_LENGTH = struct.Struct(">I")
_ALIGNMENT = 8
_START = struct.Struct(">4sI")
"""How a message begins (federation/messages.py): what it is, and how long its header is."""
Body = bytes | memoryview
"""A message: bytes, or for a large one the memory in which it came down."""
Header = dict[str, Any]


class WireError(ValueError):
    """The other side breaks the format: its stream is to be ended. The text says why."""


def encode_frame(header: Mapping[str, Any], *parts: Body) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, *parts))


def decode_frame(
    message: bytes, most_header: int = FRAME_HEADER, most: int = PIECE + FRAME_HEADER
) -> tuple[Header, memoryview]:
    size = int(_LENGTH.unpack_from(message)[0]) if len(message) >= _LENGTH.size else most_header
    start = _LENGTH.size + size
    if size > most_header or start > len(message) or len(message) - start > most:
        raise WireError("a frame lies about its length")
    try:
        header = json.loads(message[_LENGTH.size : start])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise WireError("a frame has no JSON header")
    return header, memoryview(message)[start:]


def encode_bundle(header: Mapping[str, Any], parts: Mapping[str, Body]) -> bytes:
    """The header and the parts, which are found again by their names.

    >>> decode_bundle(encode_bundle({"round": 3}, {"north": b"abc", "south": b""}))
    ({'round': 3}, {'north': b'abc', 'south': b''})
    """
    sizes = [[name, len(part)] for name, part in parts.items()]
    made = encode_frame({"header": header, "parts": sizes}, *parts.values())
    if _LENGTH.unpack_from(made)[0] > MAX_HEADER:
        raise ValueError("the header of a bundle is too long")
    return made


def decode_bundle(data: bytes) -> tuple[Header, dict[str, bytes]]:
    """Header and parts; a ValueError is bytes that are no bundle."""
    try:
        found, body = decode_frame(data, MAX_HEADER, len(data))
        header, sizes = found["header"], found["parts"]
        fine = isinstance(header, dict) and all(type(name) is str and type(size) is int for name, size in sizes)
        if not fine or sum(size for _, size in sizes) != len(body) or any(size < 0 for _, size in sizes):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise ValueError("these bytes are no bundle") from None
    parts, at = {}, 0
    for name, size in sizes:
        parts[name] = bytes(body[at : at + size])
        at += size
    return header, parts


class ChunkAssembler:
    """Memory for one message of an announced size, filled in order.

    It lies so that the message's vector is aligned and can be used where it is. The operating system gives memory for
    bytes that have come, and not for bytes that were announced.

    >>> landing = ChunkAssembler(6)
    >>> landing.add(b"abcd"), landing.add(b"ef"), bytes(landing.body)
    (False, True, b'abcdef')
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.received = 0
        self._memory: memoryview | None = None

    def add(self, piece: Body) -> bool:
        """Whether the message is complete with this piece; `OverflowError` where it is more than was announced."""
        if self.received + len(piece) > self.size:
            raise OverflowError
        if self._memory is None:
            before = _START.size + int(_START.unpack_from(piece)[1]) if len(piece) >= _START.size else 0
            start = -before % _ALIGNMENT  # so that the vector, which follows the header, is aligned
            self._memory = np.empty(self.size + _ALIGNMENT, np.uint8).data[start : start + self.size]
        self._memory[self.received : self.received + len(piece)] = piece
        self.received += len(piece)
        return self.received == self.size

    @property
    def body(self) -> memoryview:
        if self._memory is None or self.received != self.size:
            raise ValueError("the message is not complete")
        return self._memory
