"""The processes that answer for own arbiters, one for each job that asks, and only so many at once."""

from __future__ import annotations

import multiprocessing
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from databazaar.codes import Code
from databazaar.federation.frames import Header, decode_bundle, encode_bundle
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.hub.children import Turns, start

MOST_OF_ONE = 2
"""Of one consumer so many wait beside those that have a process."""
FULL = "the hub answers as many questions at once as it can: ask again in a second"
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

    def __init__(self, about: Mapping[str, Any]) -> None:
        folder = Path(about["folder"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._connection, there = multiprocessing.Pipe()
        with there:
            self._process = start(answer_on, (there, folder), f"answerer-{folder.name}")
        self._call(dict(about), within=STARTS_WITHIN)

    def connected(self) -> list[str]:
        return list(self._call({"op": "connected"})[0]["connected"])

    def ask(self, names: Sequence[str], payload: bytes, timeout: float, due: RoundDue) -> Answers:
        header = {"op": "ask", "names": list(names), "timeout": timeout, **asdict(due)}
        told, replies = self._call(header, payload)
        privacy = {name: (float(epsilon), float(delta)) for name, (epsilon, delta) in told["privacy"].items()}
        codes = {name: None if body is None else Code.read(body) for name, body in told["codes"].items()}
        return Answers(told["kind"], replies, told["lost"], codes, privacy)

    def _call(self, header: Header, body: bytes = b"", within: float = GRACE) -> tuple[Header, dict[str, bytes]]:
        """What the process says, and the replies that it brings."""
        try:
            self._connection.send_bytes(encode_bundle(header, {"body": body}))
            if not self._connection.poll(within):
                raise TimeoutError
            told, replies = decode_bundle(self._connection.recv_bytes())
        except (OSError, EOFError):
            self.dispose()
            raise ConflictError("the process that answers here has ended: ask again, and another one does") from None
        if "refused" in told:
            raise InvalidError(str(told["refused"]))
        return told, replies

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def dispose(self) -> None:
        self._connection.close()
        self._process.kill()  # whatever it does can be done again
        self._process.join()


class Held(Protocol):
    @property
    def alive(self) -> bool: ...

    def dispose(self) -> None: ...


Kind = TypeVar("Kind", bound=Held)


@dataclass
class _Place(Generic[Kind]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    item: Kind | None = None
    users: int = 0

    def let_go(self) -> None:
        with self.lock:
            if self.item is not None:
                self.item.dispose()
                self.item = None


class Pool(Generic[Kind]):
    """Something open for each job, for one thread at a time. Of more than `most` the longest unused are let go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, _Place[Kind]] = OrderedDict()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[str]:
        """The ids of their jobs."""
        return iter(list(self._held))

    @contextmanager
    def of(self, job_id: str, opened: Callable[[], Kind]) -> Iterator[Kind]:
        """What is open for this job; it is `opened` where nothing is."""
        with self._lock:
            held = self._held.setdefault(job_id, _Place())
            held.users += 1
            self._held.move_to_end(job_id)
            idle = [name for name, one in self._held.items() if not one.users]
            spare = [self._held.pop(name) for name in idle[: max(0, len(self._held) - self._most)]]
        for one in spare:
            one.let_go()
        try:
            with held.lock:
                if self._held.get(job_id) is not held:
                    raise ConflictError("the run has just been closed: look at the job again")
                if held.item is None or not held.item.alive:
                    held.item = opened()
                yield held.item
        finally:
            with self._lock:
                held.users -= 1

    def drop(self, job_id: str) -> None:
        """Lets go of what is open for a job; waits for its holder."""
        with self._lock:
            held = self._held.pop(job_id, None)
        if held is not None:
            held.let_go()

    def close(self) -> None:
        for job_id in self:
            self.drop(job_id)


class Answerers(Pool[Answerer]):
    """At most `most` processes, shared by consumers in turns; the longest idle one makes room for another job's."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        super().__init__(most)
        self._patience = patience
        self._turns = Turns(most, most + MOST_OF_ONE, FULL, FULL)

    @contextmanager
    def turn(self, job_id: str, consumer: str, about: Callable[[], Mapping[str, Any]]) -> Iterator[Answerer]:
        """The process of this job, for this caller alone. `about` is asked for where it must be started."""
        with (
            self._turns.turn(consumer, self._patience),
            self.of(job_id, lambda: Answerer(about())) as answerer,
        ):
            yield answerer


def answer_on(there: Connection, folder: Path) -> None:
    """What such a process does; it has all that it imports already."""
    from databazaar.service.notary.responder import main

    main(there, folder)
