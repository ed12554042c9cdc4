"""Answers on their way out of a provider's FLARE process: small ones at once, large ones piece by piece.

A large answer is read from the provider's own process no faster than FLARE sends it, so this process holds a few pieces
of it, and what FLARE has on its way.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_types import Stream

from databazaar.federation.guest import ANSWER, CHANNEL, CODE, NUMBER, SERVER
from databazaar.federation.payloads import Body

_WAITING = 2
"""Pieces that wait for FLARE to send them."""


class Outgoing(Stream):  # type: ignore[misc]
    """One large answer: pieces go in at one end, and FLARE reads them at the other, from a thread of its own."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
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
        """The next piece, or nothing after the last one."""
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

    def pass_on(self, number: str, code: str, size: int | None, body: Body) -> None:
        """An answer, or, where its size is given, the next piece of one."""
        headers = {NUMBER: number, CODE: code}
        if size is None:
            self._cell.send_blob(CHANNEL, ANSWER, SERVER, Message(headers, body), optional=True)
            return
        answer = self._open.get(number)
        if answer is None:
            answer = self._open[number] = Outgoing(size)
            answer.future = self._cell.send_stream(CHANNEL, ANSWER, SERVER, Message(headers, answer), optional=True)
        answer.add(body)
        if answer.complete:
            del self._open[number]
