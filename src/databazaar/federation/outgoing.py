"""What FLARE sends: questions from the server's process, answers from a provider's. Small ones go at once, large ones
piece by piece, and packed where both sides want that.

A large answer is read from the provider's own process no faster than FLARE sends it, so this process holds a few pieces
of it, and what FLARE has on its way.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer
from nvflare.fuel.f3.streaming.stream_types import Stream, StreamError

from databazaar.federation.guest import ANSWER, ASK, CHANNEL, CODE, NUMBER, PACKED, SECONDS, SERVER
from databazaar.federation.packing import pack
from databazaar.federation.payloads import PIECE, Body, pieces

_WAITING = 2
"""Pieces that wait for FLARE to send them."""
_REMEMBERED = 64
"""Questions that came packed: more than a provider is asked at a time."""


class PackedStream(Stream):  # type: ignore[misc]
    """A message that FLARE reads packed; its size is that of the message, because nobody knows the other one yet."""

    def __init__(self, message: Body) -> None:
        super().__init__(len(message))
        self.taken = 0
        self._pieces = pieces(message)
        self._left = memoryview(b"")

    def read(self, size: int) -> Body:
        if not self._left:
            found = next(self._pieces, None)
            if found is None:
                return b""
            self._left = memoryview(pack(found[1]))
            self.taken = found[0] + len(found[1])
        part, self._left = self._left[:size], self._left[size:]
        self.pos += len(part)
        return part


class Outgoing(Stream):  # type: ignore[misc]
    """One large answer: pieces go in at one end, and FLARE reads them at the other, from a thread of its own."""

    def __init__(self, size: int, packed: bool = False) -> None:
        super().__init__(size)
        self._packed, self._left = packed, memoryview(b"")
        self.future: Any = None
        self._added = 0
        self._pieces: deque[Body] = deque()
        self._change = threading.Condition()

    @property
    def complete(self) -> bool:
        return bool(self._added >= self.size)

    def add(self, piece: Body) -> None:
        """Waits until there is room; a piece of an answer that FLARE has given up is forgotten."""
        with self._change:
            self._added += len(piece)
            while len(self._pieces) >= _WAITING and not self._given_up():
                self._change.wait(0.1)
            if not self._given_up():
                self._pieces.append(piece)
            self._change.notify_all()

    def read(self, size: int) -> Body:
        """The next bytes, or nothing after the last ones."""
        if not self._left:
            piece = self._next()
            self._left = memoryview(pack(piece) if self._packed and piece else piece)
        part, self._left = self._left[:size], self._left[size:]
        return part

    def _next(self) -> Body:
        with self._change:
            while not self._pieces and self.pos < self.size:
                self._change.wait()
            if not self._pieces:
                return b""
            piece = self._pieces.popleft()
            self.pos += len(piece)
            self._change.notify_all()
            return piece

    def _given_up(self) -> bool:
        return self.future is not None and self.future.done()


class Answers:
    """All answers of this process, each under the number of its question."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self._open: dict[str, Outgoing] = {}
        self._packed: deque[str] = deque(maxlen=_REMEMBERED)

    def pack(self, number: str) -> None:
        """The question of this number came packed, so a large answer to it goes packed."""
        self._packed.append(number)

    def pass_on(self, number: str, code: str, size: int | None, body: Body) -> None:
        """An answer, or, where its size is given, the next piece of one."""
        headers: dict[str, Any] = {NUMBER: number, CODE: code}
        if size is None:
            self._cell.send_blob(CHANNEL, ANSWER, SERVER, Message(headers, body), optional=True)
            return
        answer = self._open.get(number)
        if answer is None:
            packed = number in self._packed
            headers |= {PACKED: True} if packed else {}
            answer = self._open[number] = Outgoing(size, packed)
            answer.future = self._cell.send_stream(CHANNEL, ANSWER, SERVER, Message(headers, answer), optional=True)
        answer.add(body)
        if answer.complete:
            del self._open[number]


class Questions:
    """The market's questions on their way to providers, by their numbers."""

    def __init__(self, cell: Any) -> None:
        self._cell = cell
        self._sending: dict[str, Any] = {}
        self.unpacks: dict[str, bool] = {}
        """Whether a provider, by name, can have large questions packed."""

    def send(self, name: str, number: str, payload: bytes, seconds: float, pack: bool = False) -> None:
        headers: dict[str, Any] = {NUMBER: number, SECONDS: seconds}
        if len(payload) > PIECE and pack and self.unpacks.get(name):
            message = Message({**headers, PACKED: True}, PackedStream(payload))
            self._sending[number] = self._cell.send_stream(CHANNEL, ASK, name, message, optional=True)
        else:
            self._sending[number] = self._cell.send_blob(CHANNEL, ASK, name, Message(headers, payload), optional=True)

    def taken(self, number: str) -> int:
        """Bytes of this question that its provider has acknowledged, or all of them once FLARE is done with it."""
        sending = self._sending.get(number)
        if sending is None or sending.error is not None:
            return 0
        task = sending.task_handle
        if task is None or sending.done():
            return int(sending.get_size())
        taken = min(task.offset, task.offset_ack)
        if isinstance(task.stream, PackedStream):  # what is acknowledged is packed
            taken = taken * task.stream.taken // max(1, task.stream.pos)
        return int(taken)

    def sends(self, name: str, stream: object) -> bool:
        """Is this stream a question on its way to this provider?"""
        task = ByteStreamer.tx_task_map.get(stream) if isinstance(stream, int) else None
        return task is not None and task.target == name

    def stop(self, number: str) -> None:
        """A question that is over is not sent on to one that does not read it."""
        if (sending := self._sending.pop(number, None)) is None:
            return
        if not sending.done():
            sending.task_handle.stop(StreamError("the question is over"))  # its own `cancel` waits for itself
        sending.task_handle = None  # the two point at each other, and at a buffer of 1 MiB that would stay for long
