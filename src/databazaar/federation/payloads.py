"""Large messages: they go in pieces of 1 MiB, and each piece is written straight to where its message comes down."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

PIECE = 1024 * 1024
"""Bytes of a piece: one message of gRPC's at the most."""
_ALIGNMENT = 8
_START = struct.Struct(">4sI")
"""How a message begins (federation/messages.py): what it is, and how long its header is."""
Body = bytes | memoryview
"""A message: bytes, or for a large one the memory in which it came down."""

log = logging.getLogger("databazaar.federation.transfers")
"""Logs what moves: one line a second at the most, and only of large messages."""


def pieces(body: Body) -> Iterator[tuple[int, memoryview]]:
    """The body piece by piece, each with where it begins; nothing is copied."""
    view = memoryview(body)
    for at in range(0, len(view), PIECE):
        yield at, view[at : at + PIECE]


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
            start = _shift(piece)
            size = self.size + _ALIGNMENT
            self._memory = np.empty(size, np.uint8).data[start : start + self.size]
        self._memory[self.received : self.received + len(piece)] = piece
        self.received += len(piece)
        return self.received == self.size

    @property
    def body(self) -> memoryview:
        """The message, once it is complete."""
        if self._memory is None or self.received != self.size:
            raise ValueError("the message is not complete")
        return self._memory


def _shift(first: Body) -> int:
    """By how many bytes a message is to be moved so that its vector, which begins at a multiple of 8 bytes after the
    header, begins at a multiple of 8 bytes of memory."""
    if len(first) < _START.size:
        return 0
    return -(_START.size + int(_START.unpack_from(first)[1])) % _ALIGNMENT


@dataclass(frozen=True)
class PayloadTransfer:
    """How far an ask has come: bytes of the question that the provider has taken, and of its answer that are here.
    `to_receive` is 0 as long as there is nothing of the answer."""

    sent: int
    to_send: int
    received: int = 0
    to_receive: int = 0

    @property
    def large(self) -> bool:
        """Whether anything of it goes in pieces."""
        return max(self.to_send, self.to_receive) > PIECE

    def __str__(self) -> str:
        if self.to_receive:
            return f"{amount(self.received, self.to_receive)} of the answer received"
        return f"{amount(self.sent, self.to_send)} of the question sent"


def amount(done: int, size: int) -> str:
    """
    >>> amount(12_345_678, 100_000_000)
    '12.3 of 100.0 MB'
    """
    return f"{done / 1e6:.1f} of {size / 1e6:.1f} MB"


@contextmanager
def overheard(tell: Callable[[str], None]) -> Iterator[None]:
    """Tells, while it lasts, of all that moves in this process, for display on a terminal."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    ear, level = Ear(), log.level
    log.addHandler(ear)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(ear)
        log.setLevel(level)


class Meter:
    """Tells of a large message as it moves: once a second, and at its end."""

    def __init__(self, what: str, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._size, self._clock = what, size, clock
        self._told = clock()

    def moved(self, done: int) -> None:
        now = self._clock()
        if now - self._told >= 1.0 or done == self._size:
            self._told = now
            log.info("%s: %s", self._what, amount(done, self._size))
