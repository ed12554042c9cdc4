"""What the market's server sends to one provider: questions that take turns on its stream."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

from databazaar.federation.payloads import Body
from databazaar.federation.wire import body_frames, encode_frame

_FRAMES_PER_SECOND, _BURST = 200.0, 1000.0


class ProviderStream:
    """One provider's stream. Questions take turns, a piece each; gRPC asks for the next when one is on its way."""

    def __init__(self, name: str, serial: int) -> None:
        self.name, self.serial = name, serial
        self._queue: deque[tuple[str, Iterator[tuple[int, bytes]]]] = deque()
        self._taken: dict[str, int] = {}
        self._change = threading.Condition()
        self._why: str | None = None
        self._allowance, self._filled_at = _BURST, time.monotonic()

    def send(self, number: str, payload: Body, seconds: float, pack: bool) -> None:
        frames = body_frames({"op": "ask", "number": number, "seconds": seconds, "pack": pack}, payload, pack)
        with self._change:
            if self._why is not None:
                raise ConnectionError(self._why)
            self._taken[number] = 0
            self._queue.append((number, frames))
            self._change.notify_all()

    def taken(self, number: str) -> int:
        """Bytes of this question that were sent."""
        return self._taken.get(number, 0)

    def stop(self, number: str) -> None:
        """The question is over: no more of it is sent, and the provider need not go on with it."""
        with self._change:
            if self._taken.pop(number, None) is not None and self._why is None:
                self._queue = deque(waiting for waiting in self._queue if waiting[0] != number)
                self._queue.append(("", iter([(0, encode_frame({"op": "over", "number": number}))])))
                self._change.notify_all()

    def close(self, why: str) -> None:
        with self._change:
            self._why = self._why or why
            self._queue.clear()
            self._change.notify_all()

    def frames(self) -> Iterator[bytes]:
        """What gRPC sends, until the connection is closed."""
        yield encode_frame({"op": "welcome"})
        while True:
            with self._change:
                self._change.wait_for(lambda: self._why is not None or bool(self._queue))
                if self._why is not None:
                    return
                number, frames = self._queue.popleft()
            if (found := next(frames, None)) is None:
                continue
            yield found[1]
            with self._change:
                if number in self._taken:
                    self._taken[number] = found[0]
                    self._queue.append((number, frames))

    @property
    def why(self) -> str:
        """Why it was closed."""
        return self._why or ""

    def pause(self) -> None:
        """Waits a moment where many frames came that belong to nothing: reading them costs more than sending them."""
        now = time.monotonic()
        self._allowance = min(_BURST, self._allowance + (now - self._filled_at) * _FRAMES_PER_SECOND) - 1.0
        self._filled_at = now
        if self._allowance < 0:
            time.sleep(-self._allowance / _FRAMES_PER_SECOND)
