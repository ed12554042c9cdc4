"""Questions under way: who was asked, what came back, and why nothing did. No network in here."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


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
class _Open:
    waiting: set[str]
    replies: Replies = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)


class Exchange:
    """Sends one payload to many and gathers the answers until a deadline.

    Every question has a fresh random id, and an answer counts only while that question is open, and
    only from a provider that was asked. So an answer that comes late belongs to nothing and is dropped.
    """

    def __init__(
        self,
        send: Callable[[str, str, bytes, float], None],
        connected: Callable[[str], bool],
        max_bytes: int,
        poll: float = 0.05,
    ) -> None:
        self._send = send
        self._connected = connected
        self._max_bytes = max_bytes
        self._poll = poll
        self._open: dict[str, _Open] = {}
        self._changed = threading.Condition()

    def ask(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        deadline = time.monotonic() + timeout
        names = list(dict.fromkeys(names))
        here = [name for name in names if self._connected(name)]
        question = _Open(set(here), failures={name: Lost.NOT_CONNECTED for name in names if name not in here})
        number = secrets.token_hex(16)
        with self._changed:
            self._open[number] = question
        try:
            for name in here:
                try:
                    self._send(name, number, payload, max(0.0, deadline - time.monotonic()))
                except Exception:
                    self._settle(question, name, Lost.CONNECTION_LOST)
            self._wait(question, deadline)
        finally:
            with self._changed:
                del self._open[number]
                for name in question.waiting:
                    question.failures[name] = Lost.NO_ANSWER
        return question.replies, question.failures

    def expects(self, name: str, number: object) -> bool:
        """Is there an open question that this provider has not answered yet?"""
        with self._changed:
            question = self._open.get(number) if isinstance(number, str) else None
            return question is not None and name in question.waiting

    def answer(self, name: str, number: str, code: str, body: bytes) -> bool:
        """Take one answer; `code` is empty for a good one. False if it belongs to no open question."""
        with self._changed:
            question = self._open.get(number)
            if question is None or name not in question.waiting:
                return False
            question.waiting.discard(name)
            if code:
                question.failures[name] = Lost(code)
            elif len(body) > self._max_bytes:
                question.failures[name] = Lost.TOO_LARGE
            else:
                question.replies[name] = body
            self._changed.notify_all()
            return True

    def _settle(self, question: _Open, name: str, why: Lost) -> None:
        with self._changed:
            if name in question.waiting:
                question.waiting.discard(name)
                question.failures[name] = why

    def _wait(self, question: _Open, deadline: float) -> None:
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
