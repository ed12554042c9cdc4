"""Watches over chores as they run, in this process or in others, and tells how far they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from databazaar_experiments.forecast import Forecast

if TYPE_CHECKING:
    from databazaar_experiments.compute import Chore

EVERY = 0.5
"""Seconds between two tellings."""
BEGUN = 1e-12
"""The share of a chore that has begun; zero is one that waits."""


@dataclass(frozen=True)
class News:
    """How far all is: chores `done` of `count`, the `share` of the work, and the seconds `left`, maybe not a number.

    Where one was just `finished`, `seconds` is what it took.
    """

    done: int
    count: int
    share: float
    left: float
    running: tuple[Chore, ...]
    finished: Chore | None = None
    seconds: float = 0.0


Tell = Callable[[News], None]


class Watch:
    """`shares` has a number a chore, which whoever computes it raises; nobody ever waits for that."""

    def __init__(self, chores: Sequence[Chore], forecast: Forecast, shares: MutableSequence[float], tell: Tell) -> None:
        self.chores, self.forecast, self.shares, self._tell = chores, forecast, shares, tell
        self.lock = threading.Lock()

    def look(self) -> None:
        """Reads the shares and tells."""
        with self.lock:
            self._read()
            self._tell(self._news())

    def finished(self, place: int, seconds: float) -> None:
        with self.lock:
            self._read()
            self.forecast.finished(place, seconds)
            self._tell(self._news(self.chores[place], seconds))

    def _read(self) -> None:
        for place, share in enumerate(self.shares):
            if share > 0:
                self.forecast.tell(place, 0.0 if share <= BEGUN else share)

    def _news(self, finished: Chore | None = None, seconds: float = 0.0) -> News:
        forecast = self.forecast
        running = tuple(self.chores[place] for place in forecast.running)
        left = forecast.seconds_left()
        return News(len(forecast.seconds), len(self.chores), forecast.share(), left, running, finished, seconds)


@contextmanager
def looking(watch: Watch) -> Iterator[None]:
    """Looks again and again from a thread, so that time passes also while a chore tells nothing."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(EVERY):
            watch.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
