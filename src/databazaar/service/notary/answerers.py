"""The processes that answer for own arbiters, one for each job that asks, and only so many at once."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from databazaar.codes import Code
from databazaar.federation.frames import Channel, ClosedError, Header
from databazaar.service.errors import ConflictError, InvalidError, TooManyError
from databazaar.service.hub.children import start

MOST_WAITING, MOST_OF_ONE = 16, 2
"""Who waits keeps a thread of the hub: so not many do, and of one consumer fewer still. The others ask again."""
FULL = "the hub answers as many questions at once as it can: ask again in a second"


class ResponderQueue:
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


STARTS_WITHIN, GRACE, PATIENCE = 120.0, 330.0, 10.0
"""Seconds for a process to load what it needs; for an answer, of which the process gives up after 300 itself; and until
one who waits for a process is told to ask again."""


@dataclass(frozen=True)
class Answers:
    """What came of a question. `lost` says why there is no reply, and `codes` what the ledger will say of each: None
    where the reply is valid. `privacy` has ε and δ of those who told them."""

    kind: str
    replies: dict[str, bytes]
    lost: dict[str, str]
    codes: dict[str, Code | None]
    privacy: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class RoundDue:
    """What the ledger says of the round under way: its number, and the hash of the model that it begins with.
    `no_update` says why nobody can be asked for an update now, where that is so."""

    round: int = 0
    model: str = ""
    no_update: str = ""


class Answerer:
    """One process, and the way to talk to it: for one thread at a time."""

    def __init__(self, about: Mapping[str, Any], max_bytes: int) -> None:
        folder = Path(about["folder"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        here, there = socket.socketpair()
        with there:
            self._process = start(answer_on, (there, folder), f"answerer-{folder.name}")
        self._channel = Channel(here, max_bytes)
        self._call(dict(about), within=STARTS_WITHIN)

    def connected(self) -> list[str]:
        names: list[str] = self._call({"op": "connected"})[0]["connected"]
        return names

    def ask(self, names: Sequence[str], payload: bytes, timeout: float, due: RoundDue) -> Answers:
        header = {"op": "ask", "names": list(names), "timeout": timeout, **asdict(due)}
        told, replies = self._call(header, payload)
        privacy = {name: (float(epsilon), float(delta)) for name, (epsilon, delta) in told["privacy"].items()}
        codes = {name: None if body is None else Code.read(body) for name, body in told["codes"].items()}
        return Answers(told["kind"], replies, told["lost"], codes, privacy)

    def _call(self, header: Header, body: bytes = b"", within: float = GRACE) -> tuple[Header, dict[str, bytes]]:
        replies: dict[str, bytes] = {}
        try:
            self._channel.settimeout(within)
            self._channel.send(header, body)
            while True:
                told, part = self._channel.receive()
                if "refused" in told:
                    raise InvalidError(str(told["refused"]))
                if "name" not in told:
                    return told, replies
                replies[str(told["name"])] = part
        except (ClosedError, TimeoutError):
            self.close()
            raise ConflictError("the process that answers here has ended: ask again, and another one does") from None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def close(self) -> None:
        self._channel.close()
        self._process.kill()  # whatever it does can be done again
        self._process.join()


class Answerers:
    """At most `most` processes, shared by consumers in turns; the longest idle one makes room for another job's."""

    def __init__(self, most: int, max_bytes: int, patience: float = PATIENCE) -> None:
        self._most, self._max_bytes = most, max_bytes
        self._turns = ResponderQueue(most, patience)
        self._idle: OrderedDict[str, Answerer] = OrderedDict()
        self._busy = 0
        self._lock = threading.Lock()

    @contextmanager
    def of(self, job_id: str, consumer: str, about: Callable[[], Mapping[str, Any]]) -> Iterator[Answerer]:
        """The process of this job, for this caller alone. `about` is asked for where it must be started."""
        with self._turns.turn(consumer), self._started(job_id, about) as answerer:
            yield answerer

    @contextmanager
    def _started(self, job_id: str, about: Callable[[], Mapping[str, Any]]) -> Iterator[Answerer]:
        answerer, gone = self._taken(job_id)
        try:
            if gone is not None:
                gone.close()
            if answerer is None or not answerer.alive:
                answerer = Answerer(about(), self._max_bytes)
            yield answerer
        finally:
            with self._lock:
                self._busy -= 1
                if answerer is not None and answerer.alive:
                    self._idle[job_id] = answerer

    def _taken(self, job_id: str) -> tuple[Answerer | None, Answerer | None]:
        """The job's own process, if it has one; and one of another job that must go for it."""
        with self._lock:
            answerer = self._idle.pop(job_id, None)
            self._busy += 1
            full = answerer is None and self._busy + len(self._idle) > self._most
            return answerer, self._idle.popitem(last=False)[1] if full and self._idle else None

    def drop(self, job_id: str) -> None:
        """Ends the process of a job that is over."""
        with self._lock:
            answerer = self._idle.pop(job_id, None)
        if answerer is not None:
            answerer.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for answerer in idle:
            with contextlib.suppress(OSError):
                answerer.close()


def answer_on(there: socket.socket, folder: Path) -> None:
    """What such a process does; it has all that it imports already."""
    from databazaar.service.notary.responder import main

    main(there, folder)
