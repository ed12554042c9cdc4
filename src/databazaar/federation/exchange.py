"""Questions under way: who was asked, what came back, and why nothing did. No network in here."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from databazaar.federation.arriving import Arriving, Chunk, OutOfOrderError

REPLY_ROOM = 64 * 1024
"""Bytes by which an answer may be longer than its question: an update is as long as the parameters it is for."""


class Lost(StrEnum):
    """Why no reply came back from a provider, in the words that travel and that ledgers keep."""

    NOT_CONNECTED = "not connected"
    CONNECTION_LOST = "connection lost"
    NO_ANSWER = "no answer by the deadline"
    TOO_LARGE = "reply too large"
    PROVIDER_ERROR = "provider error"

    @classmethod
    def _missing_(cls, value: object) -> Lost:
        """Words that the other side made up are never passed on."""
        return cls.PROVIDER_ERROR


Replies = dict[str, bytes]
Failures = dict[str, Lost]


@dataclass
class _Question:
    waiting: set[str]
    replies: Replies = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)


@dataclass
class _Open:
    """One provider's part in a question."""

    name: str
    question: _Question
    arriving: Arriving


class Exchange:
    """Sends one payload to many and gathers the answers until a deadline.

    Every provider gets a random number of its own with every question, and an answer counts only under that number,
    from that provider, while the question is open. So an answer that comes late belongs to nothing and is dropped, and
    whoever knows its own number knows nothing of another's. What has come of an answer is let go with its question.
    """

    def __init__(
        self,
        send: Callable[[str, str, bytes, float], None],
        connected: Callable[[str], bool],
        max_bytes: int,
        poll: float = 0.05,
        ended: Callable[[str], None] = lambda number: None,
    ) -> None:
        self._send = send
        self._connected = connected
        self._max_bytes = max_bytes
        self._poll = poll
        self._ended = ended
        self._open: dict[str, _Open] = {}
        self._changed = threading.Condition()

    def ask(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        deadline = time.monotonic() + timeout
        names = list(dict.fromkeys(names))
        here = [name for name in names if self._connected(name)]
        question = _Question(set(here), failures={name: Lost.NOT_CONNECTED for name in names if name not in here})
        room = min(self._max_bytes, len(payload) + REPLY_ROOM)
        numbers = {secrets.token_hex(16): name for name in here}
        with self._changed:
            self._open |= {number: _Open(name, question, Arriving(room)) for number, name in numbers.items()}
        try:
            for number, name in numbers.items():
                try:
                    self._send(name, number, payload, max(0.0, deadline - time.monotonic()))
                except Exception:
                    self._settle(question, name, Lost.CONNECTION_LOST)
            self._wait(question, deadline)
        finally:
            with self._changed:
                for number in numbers:
                    del self._open[number]
                for name in question.waiting:
                    question.failures[name] = Lost.NO_ANSWER
            for number in numbers:
                self._ended(number)
        return question.replies, question.failures

    def expects(self, name: str, number: object) -> bool:
        """Is there an open question of this number that this provider has not answered yet?"""
        with self._changed:
            return self._find(name, number) is not None

    def take(self, name: str, number: object, chunk: Chunk) -> int:
        """One piece of an answer. Returns how much of the answer is here, or 0 where no more of it is wanted.

        An answer that is longer than its question allows, or whose pieces do not fit together, ends as a failure.
        """
        with self._changed:
            if (found := self._find(name, number)) is None:
                return 0
            try:
                body = found.arriving.add(chunk)
            except OverflowError:
                self._answer(found, Lost.TOO_LARGE, b"")
                return 0
            except OutOfOrderError:
                self._answer(found, Lost.PROVIDER_ERROR, b"")
                return 0
            if body is not None:
                self._answer(found, "" if chunk.code == "" else str(chunk.code), body)
                return 0
            return len(found.arriving.body)

    def _find(self, name: str, number: object) -> _Open | None:
        found = self._open.get(number) if isinstance(number, str) else None
        return found if found is not None and found.name == name and name in found.question.waiting else None

    def _answer(self, found: _Open, code: str, body: bytes) -> None:
        found.arriving.body.clear()
        found.question.waiting.discard(found.name)
        if code:
            found.question.failures[found.name] = Lost(code)
        else:
            found.question.replies[found.name] = body
        self._changed.notify_all()

    def _settle(self, question: _Question, name: str, why: Lost) -> None:
        with self._changed:
            if name in question.waiting:
                question.waiting.discard(name)
                question.failures[name] = why

    def _wait(self, question: _Question, deadline: float) -> None:
        while True:
            with self._changed:
                left = deadline - time.monotonic()
                if not question.waiting or left <= 0:
                    return
                self._changed.wait(min(self._poll, left))
                still = list(question.waiting)
            for name in still:
                if not self._connected(name):
                    self._settle(question, name, Lost.CONNECTION_LOST)
