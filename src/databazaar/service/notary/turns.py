"""Turns: so many are served at once, and consumers that wait are let in by turns, whoever of them asks most."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from databazaar.service.errors import TooManyError

MOST_WAITING, MOST_OF_ONE = 16, 2
"""Who waits keeps a thread of the hub: so not many do, and of one consumer fewer still. The others ask again."""
FULL = "the hub answers as many questions at once as it can: ask again in a second"


class Turns:
    """For all threads of a process. `patience` is for how many seconds one waits."""

    def __init__(self, most: int, patience: float) -> None:
        self._most, self._patience = most, patience
        self._changed = threading.Condition()
        self._busy = 0
        self._numbers = count(1)
        self._waiting: dict[int, str] = {}
        self._served: dict[str, int] = {}

    @contextmanager
    def turn(self, consumer: str) -> Iterator[None]:
        """Waits until it is this consumer's turn, and has it until the end."""
        with self._changed:
            self._wait(consumer)
            self._busy += 1
            self._served[consumer] = next(self._numbers)
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _wait(self, consumer: str) -> None:
        of_one = Counter(self._waiting.values())[consumer]
        if len(self._waiting) >= MOST_WAITING or of_one >= MOST_OF_ONE:
            raise TooManyError(FULL)
        mine = next(self._numbers)
        self._waiting[mine] = consumer
        try:
            if not self._changed.wait_for(lambda: self._busy < self._most and self._next() == mine, self._patience):
                raise TooManyError(FULL)
        finally:
            del self._waiting[mine]
            self._changed.notify_all()  # the next one may be let in too

    def _next(self) -> int:
        """Of those who wait, one of the consumer that was served the longest time ago; of these the first."""
        return min(self._waiting, key=lambda one: (self._served.get(self._waiting[one], 0), one))
