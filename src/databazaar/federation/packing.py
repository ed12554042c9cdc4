"""Lossless compression of large messages between the server and a provider, piece by piece.

    | plain length, 4 | packed length, 4, of each of the four planes | planes |      once for every piece

A plane has every fourth byte, so that in a vector of float32 signs and exponents stand together, which is the part that
can be compressed. A plane is zlib's, or the bytes themselves where that would not make it shorter; that is tried on a
sample, because trying costs more than sending. Nothing is believed: no piece unpacks to more than it says, none says
more than a piece, and all together not more than the message that was announced.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

from databazaar.federation.payloads import PIECE, Body

_PLANES = 4
_HEAD = struct.Struct(f">{1 + _PLANES}I")
_SAMPLE, _WORTH = 8192, 0.9


class PackingError(ValueError):
    """Bytes that do not unpack to what was announced."""


def most_packed(size: int) -> int:
    """Bytes that a message of this size takes at the most when it is packed."""
    return size + _HEAD.size * -(-size // PIECE)


def pack(piece: Body) -> bytes:
    """At most one piece, packed."""
    data = np.frombuffer(piece, np.uint8)
    packed = [_packed(data[start::_PLANES].tobytes()) for start in range(_PLANES)]
    return b"".join((_HEAD.pack(len(data), *map(len, packed)), *packed))


def _packed(plane: bytes) -> bytes:
    sample = plane[:_SAMPLE]
    if len(_deflated(sample)) > _WORTH * len(sample):
        return plane
    tried = _deflated(plane)
    return tried if len(tried) < len(plane) else plane


def _deflated(data: bytes) -> bytes:
    return zlib.compress(data, level=1)


class Unpacking:
    """Unpacks a message of an announced size from whatever parts of it come."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = bytearray()
        self.unpacked = 0

    @property
    def whole(self) -> bool:
        return self.unpacked == self._size and not self._held

    def add(self, data: Body) -> Iterator[bytes]:
        """The pieces that are complete with this; it holds no more than one piece and what was given."""
        self._held += data
        while len(self._held) >= _HEAD.size:
            plain, *lengths = _HEAD.unpack_from(self._held)
            planes = [(plain - start + _PLANES - 1) // _PLANES for start in range(_PLANES)]
            if not 0 < plain <= min(PIECE, self._size - self.unpacked) or any(map(int.__gt__, lengths, planes)):
                raise PackingError
            end = _HEAD.size + sum(lengths)
            if len(self._held) < end:
                return
            packed = bytes(self._held[_HEAD.size : end])
            del self._held[:end]
            self.unpacked += plain
            yield _unpacked(packed, plain, lengths, planes)


def _unpacked(packed: bytes, plain: int, lengths: list[int], planes: list[int]) -> bytes:
    data, at = np.empty(plain, np.uint8), 0
    for start, (length, count) in enumerate(zip(lengths, planes, strict=True)):
        part = packed[at : at + length]
        data[start::_PLANES] = np.frombuffer(part if length == count else _inflated(part, count), np.uint8)
        at += length
    return data.tobytes()


def _inflated(part: bytes, count: int) -> bytes:
    """Exactly so many bytes, and never more than one beyond that."""
    made = zlib.decompressobj()
    try:
        data = made.decompress(part, count + 1)
    except zlib.error:
        raise PackingError from None
    if len(data) != count or not made.eof or made.unused_data:
        raise PackingError
    return data
