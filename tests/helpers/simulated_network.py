"""A network in virtual time, all of it from one seed: the real Exchange over messages that are lost, late, sent twice,
out of order or replayed, and real workers behind it that restart, lie, hang, or answer at the very deadline.

Nothing sleeps and nothing runs beside anything else: whoever waits lets the next event happen.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from databazaar.federation import exchange as exchanges
from databazaar.federation.exchange import Exchange
from databazaar.federation.messages import Reply, Request, decode_request, encode_reply
from databazaar.federation.transport import Failures, Replies, Transport
from databazaar.federation.worker import ProviderWorker
from whole_answers import hand_in

DEADLINE = 4.0
TARGET = np.array([1.0, -1.0, 0.5])


class Clock:
    """Virtual time, and what is going to happen in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.now

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, happen))

    def pass_(self, seconds: float) -> None:
        """Until the next event, which happens, or until the time is over."""
        until = self.now + seconds
        if self._events and self._events[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        else:
            self.now = until


class _Waiting:
    """A condition, or a lock, of the only thread there is: to wait is to let time pass."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float) -> None:
        self._clock.pass_(timeout)

    def notify_all(self) -> None:
        return None


@contextlib.contextmanager
def virtual(clock: Clock, rng: random.Random) -> Iterator[None]:
    """The exchange takes its time, its locks and its random numbers from here."""
    put: dict[str, Any] = {
        "time": types.SimpleNamespace(monotonic=clock.monotonic),
        "threading": types.SimpleNamespace(
            Condition=lambda *_: _Waiting(clock), Lock=lambda: _Waiting(clock), RLock=lambda: _Waiting(clock)
        ),
        "secrets": types.SimpleNamespace(token_hex=lambda size: rng.randbytes(size).hex()),
    }
    before = {name: getattr(exchanges, name) for name in put}
    for name, stand_in in put.items():
        setattr(exchanges, name, stand_in)
    try:
        yield
    finally:
        for name, own in before.items():
            setattr(exchanges, name, own)


@dataclass(frozen=True)
class Weather:
    """How often what happens on the way, as chances of a message. A calm network loses nothing and delays little."""

    lost: float = 0.0
    twice: float = 0.0
    slow: float = 0.0
    replayed: float = 0.0
    breaks: float = 0.0
    """Chance of an answer that the provider's process dies over, to come back some time later."""

    @property
    def calm(self) -> bool:
        return self == Weather()

    @classmethod
    def of(cls, rng: random.Random) -> Weather:
        if rng.random() < 0.3:
            return cls()
        return cls(*(rng.choice((0.0, 0.05, 0.3)) for _ in range(5)))


HONEST = ("answers",)
WAYS = (
    *("answers", "refuses", "fails", "garbage", "nan", "huge", "another round", "another's name", "another shape"),
    *("hangs", "at the deadline", "twice", "old answer"),
)


@dataclass
class Party:
    """A provider: a real worker over a tiny oracle, and what else it does, by the seed, in every round."""

    name: str
    offset: float
    ways: tuple[str, ...]
    seed: int
    up: bool = True
    worker: ProviderWorker = field(init=False)
    old: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.up = True
        self.worker = ProviderWorker(self.name, lambda w: TARGET + self.offset - w)

    def way(self, request: Request) -> str:
        """The same whenever it is asked the same."""
        return random.Random(f"{self.seed} {self.name} {request.kind} {request.round}").choice(self.ways)

    def answers(self, payload: bytes) -> list[tuple[float, str, bytes]]:
        """What it sends and when: seconds later, a code for its own site, and bytes."""
        request, params = decode_request(payload)
        way = self.way(request)
        good = self.worker(payload)
        self.old.append(good)
        if way == "hangs":
            return []
        if way == "fails":
            return [(0.1, "provider-error", b"")]
        if way == "at the deadline":
            return [(DEADLINE * random.Random(f"{request.round} {self.name}").choice((0.99, 1.0, 1.01)), "", good)]
        if way == "old answer":
            return [(0.1, "", self.old[0]), (0.2, "", good)]
        lie = self._lie(way, request, params)
        return [(0.1, "", good if lie is None else lie), *([(0.2, "", b"late thoughts")] if way == "twice" else [])]

    def _lie(self, way: str, request: Request, params: torch.Tensor | None) -> bytes | None:
        if way == "garbage":
            return b"DBZ1 garbage"
        status, code = ("refused", "task-not-allowed") if way == "refuses" else ("ok", "")
        header: dict[str, Any] = {"protocol": 2, "run": request.run, "provider": self.name}
        header |= {"round": request.round, "status": status, "code": code, "epsilon": None, "delta": None}
        update = None if params is None or status != "ok" else torch.ones_like(params)
        if way == "another round":
            header["round"] += 1
        elif way == "another's name":
            header["provider"] = "p0" if self.name != "p0" else "p1"
        elif way in ("nan", "huge") and update is not None:
            update = update * (float("nan") if way == "nan" else 1e300)
        elif way == "another shape" and update is not None:
            update = update[1:]
        elif way != "refuses":
            return None
        return encode_reply(Reply.model_validate(header), update)


class Network(Transport):
    """The market's server, the wires, and the parties at their ends. It outlives the arbiter."""

    def __init__(self, clock: Clock, rng: random.Random, weather: Weather, parties: Sequence[Party]) -> None:
        self.clock, self._rng, self._weather = clock, rng, weather
        self.parties = {party.name: party for party in parties}
        self.delivered = 0
        self.taken: list[tuple[str, bytes]] = []
        """Whose answers reached an open question since somebody looked here."""
        self.before_asking: Callable[[], None] = lambda: None
        self._sent: list[tuple[str, str, str, bytes]] = []
        self.restart_server()

    def restart_server(self) -> None:
        """Questions under way are gone; whatever is on the wires still arrives."""
        self._exchange = Exchange(self._ask, self._is_up, max_bytes=10_000, poll=0.5)

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        self.before_asking()
        return self._exchange.ask(names, payload, timeout)

    def connected(self) -> list[str]:
        return sorted(name for name in self.parties if self._is_up(name))

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        until = self.clock.now + timeout
        while (missing := sorted(set(names) - set(self.connected()))) and self.clock.now < until:
            self.clock.pass_(until - self.clock.now)
        return missing

    def close(self) -> None:
        return None

    def _is_up(self, name: str) -> bool:
        return self.parties[name].up

    def _travel(self, arrive: Callable[[], None], seconds: float = 0.0) -> None:
        """Lost, once, or several times; soon, or after the deadline."""
        rng, weather = self._rng, self._weather
        if rng.random() < weather.lost:
            return
        for _ in range(1 + (rng.random() < weather.twice)):
            slow = rng.random() < weather.slow
            self.clock.after(seconds + (rng.uniform(0, 2 * DEADLINE) if slow else rng.uniform(0, 0.01)), arrive)

    def _ask(self, name: str, number: str, payload: bytes, _seconds: float) -> None:
        self._travel(lambda: self._reaches(self.parties[name], number, payload))

    def _reaches(self, party: Party, number: str, payload: bytes) -> None:
        if not party.up:
            return
        if self._rng.random() < self._weather.breaks:
            party.up = False
            self.clock.after(self._rng.uniform(0.0, 3 * DEADLINE), party.restart)
            return
        for seconds, code, body in party.answers(payload):
            self._sent.append((party.name, number, code, body))
            self._travel(lambda code=code, body=body: self._deliver(party.name, number, code, body), seconds)  # type: ignore[misc]
        if self._sent and self._rng.random() < self._weather.replayed:
            name, old, code, body = self._rng.choice(self._sent)
            number = self._rng.choice((old, number))  # as it was, or under the number of the question that is open now
            self._travel(lambda: self._deliver(name, number, code, body))

    def _deliver(self, name: str, number: str, code: str, body: bytes) -> None:
        self.delivered += 1
        if hand_in(self._exchange, name, number, code, body) and not code:
            self.taken.append((name, body))
