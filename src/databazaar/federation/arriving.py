"""An answer on its way in, chunk by chunk, in order, and never more of it than was announced and asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class OutOfOrderError(Exception):
    """The chunks do not make one answer: whoever sends them is to be given up."""


@dataclass(frozen=True)
class Chunk:
    """One piece of an answer, with what it says of itself: nothing of that is believed."""

    stream: Any
    sequence: Any
    size: Any
    last: bool
    code: Any
    data: bytes


@dataclass
class Arriving:
    """Memory is taken for bytes that have come, and not for bytes that were promised."""

    room: int
    stream: Any = None
    size: int = 0
    chunks: int = 0
    body: bytearray = field(default_factory=bytearray)

    def add(self, chunk: Chunk) -> bytes | None:
        """The whole answer once its last chunk is here. `OverflowError` where it is longer than it may be."""
        if not self.chunks:
            if not isinstance(chunk.size, int) or chunk.size < 0:
                raise OutOfOrderError
            self.stream, self.size = chunk.stream, chunk.size
        if self.size > self.room:
            raise OverflowError
        if (chunk.stream, chunk.sequence, chunk.size) != (self.stream, self.chunks, self.size):
            raise OutOfOrderError
        received = len(self.body) + len(chunk.data)
        if received > self.size or chunk.last != (received == self.size):
            raise OutOfOrderError
        self.chunks += 1
        self.body += chunk.data
        return bytes(self.body) if chunk.last else None
