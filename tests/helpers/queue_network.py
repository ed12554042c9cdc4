"""The real Exchange over providers that are threads of this process and answer one question after the other, as a
provider's own process does: what comes while one is computed waits there."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from databazaar.federation.exchange import Exchange
from databazaar.federation.transport import Failures, Replies, Transport
from whole_answers import hand_in


class QueueNetwork:
    """A server and its providers; `consumer` gives the way of one of several to them."""

    def __init__(
        self, handlers: Mapping[str, Callable[[bytes], bytes]], *, pause: float = 0.0, capacity: int = 1
    ) -> None:
        self.exchange = Exchange(
            self._send, handlers.__contains__, max_bytes=10**6, poll=0.01, capacity=lambda name: capacity
        )
        self.answered: list[tuple[str, bytes]] = []
        self._pause = pause
        self._handlers = handlers
        self._asked = {name: queue.Queue[tuple[str, bytes] | None]() for name in handlers}
        self._threads = [threading.Thread(target=self._answer, args=(name,)) for name in handlers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asked in self._asked.values():
            asked.put(None)
        for thread in self._threads:
            thread.join()

    def consumer(self, name: str) -> Transport:
        return _Way(self.exchange, name, sorted(self._handlers))

    def _send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        self._asked[name].put((number, payload))

    def _answer(self, name: str) -> None:
        while (question := self._asked[name].get()) is not None:
            number, payload = question
            time.sleep(self._pause)
            answer = self._handlers[name](payload)
            self.answered.append((name, payload))
            hand_in(self.exchange, name, number, "", answer)


class _Way(Transport):
    def __init__(self, exchange: Exchange, consumer: str, names: list[str]) -> None:
        self._exchange, self._consumer, self._names = exchange, consumer, names

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        return self._exchange.ask(names, payload, timeout, self._consumer)

    def connected(self) -> list[str]:
        return self._names

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        return []

    def close(self) -> None:
        return None
