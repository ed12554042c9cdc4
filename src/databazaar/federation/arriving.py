"""An answer on its way in, chunk by chunk, in order, and never more of it than was announced and asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from databazaar.federation.packing import PackingError, Unpacking, most_packed
from databazaar.federation.payloads import PIECE
from databazaar.federation.processes import WINDOW

MOST_WAITING = 2 * WINDOW
"""Bytes of a large answer that may wait to be passed on: more than anybody sends who keeps to the window."""


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
    packed: bool = False


class Piece(NamedTuple):
    """A piece of a large answer as it came, to be passed on; `stream` and `sequence` are for who acknowledges it."""

    at: int
    data: bytes
    stream: Any
    sequence: int


@dataclass
class Arriving:
    """Memory is taken for bytes that have come, and not for bytes that were promised. Where large answers are passed
    on, only those are held that wait for it."""

    room: int
    pass_on: bool = False
    stream: Any = None
    size: int = 0
    chunks: int = 0
    received: int = 0
    body: bytearray = field(default_factory=bytearray)
    waiting: deque[Piece] = field(default_factory=deque)
    passed: int = 0
    ended: bool = False
    unpacking: Unpacking | None = None

    @property
    def large(self) -> bool:
        """Whether its pieces are passed on, and not held until all are here."""
        return self.pass_on and self.size > PIECE

    @property
    def over(self) -> bool:
        """Whether all that came of a large answer was passed on."""
        return self.large and self.ended and not self.waiting

    def add(self, chunk: Chunk) -> bytes | None:
        """The whole answer once its last chunk is here, unless it is large: then its pieces wait to be passed on.
        `OverflowError` where it is longer than it may be."""
        if not self.chunks:
            if not isinstance(chunk.size, int) or chunk.size < 0:
                raise OutOfOrderError
            self.stream, self.size = chunk.stream, chunk.size
        if self.size > self.room:
            raise OverflowError
        if (chunk.stream, chunk.sequence, chunk.size) != (self.stream, self.chunks, self.size):
            raise OutOfOrderError
        received = self.received + len(chunk.data)
        if self.large:
            self._hold(chunk, received)
        elif chunk.packed or received > self.size or chunk.last != (received == self.size):
            raise OutOfOrderError
        else:
            self.body += chunk.data
        self.chunks += 1
        self.received = received
        return bytes(self.body) if chunk.last and not self.large else None

    def _hold(self, chunk: Chunk, received: int) -> None:
        """A piece of a large answer, until it is passed on. Of a packed one only the most is known that it may be."""
        if not self.chunks and chunk.packed:
            self.unpacking = Unpacking(self.size)
        packed = self.unpacking is not None
        most = most_packed(self.size) if packed else self.size
        unlike = chunk.packed != packed or chunk.code != "" or not chunk.data or self.ended
        if unlike or received > most or received - self.passed > MOST_WAITING:
            raise OutOfOrderError
        if not packed and chunk.last != (received == self.size):
            raise OutOfOrderError
        self.waiting.append(Piece(self.received, chunk.data, chunk.stream, chunk.sequence))
        self.ended = chunk.last

    def opened(self, piece: Piece) -> Iterator[bytes]:
        """What is in this piece, and where it is the last one, whether that was all."""
        try:
            yield from (piece.data,) if self.unpacking is None else self.unpacking.add(piece.data)
        except PackingError:
            raise OutOfOrderError from None
        if self.unpacking is not None and self.ended and len(self.waiting) == 1 and not self.unpacking.whole:
            raise OutOfOrderError

    def next(self) -> Piece | None:
        """The piece that is to be passed on now; it counts as waiting until that is done."""
        return self.waiting[0] if self.waiting else None

    def done(self, piece: Piece) -> None:
        """This piece was passed on."""
        if self.waiting and self.waiting[0] is piece:
            self.waiting.popleft()
            self.passed += len(piece.data)

    def clear(self) -> None:
        """Nobody wants it any more."""
        self.body.clear()
        self.waiting.clear()
