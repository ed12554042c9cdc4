"""Questions under way: who was asked, what came back, and why nothing did. No network in here."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from databazaar.federation.fair_queue import FairQueue, Queue, Ticket
from databazaar.federation.frames import PIECE
from databazaar.federation.transport import Failures, Lost, Replies

REPLY_ROOM = 64 * 1024
"""Bytes by which an answer may be longer than its question: an update is as long as the parameters it is for."""
SLOWEST = 128 * 1024
"""Bytes a second at which a large question or answer has to move on the whole, beside its deadline."""
Send = Callable[[str, str, bytes, float], None]
"""Sends a provider, by name, the question of a number, and for how many seconds it is open."""
Deliver = Callable[[str, int, bytes], None]
"""Takes large answers as they come: the provider's name, the answer's size, and the next bytes of it."""


@dataclass
class _Question:
    timeout: float
    room: int
    deliver: Deliver | None
    open: dict[str, _Open] = field(default_factory=dict)
    replies: Replies = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)


@dataclass(eq=False)
class _Open:
    """One provider's part in a question. `until` is its deadline, and after that when its queue is freed."""

    name: str
    number: str
    question: _Question
    ticket: Ticket
    until: float = inf
    began: float = inf
    moved: int = 0
    size: int = 0
    received: int = 0
    body: bytearray = field(default_factory=bytearray)
    delivering: bool = False

    @property
    def wanted(self) -> bool:
        return self.question.open.get(self.name) is self

    @property
    def deliver(self) -> Deliver | None:
        """Who takes the pieces of the answer as they come, where it is large."""
        return self.question.deliver if self.size > PIECE else None

    def fault(self, size: object, code: object, data: bytes) -> Lost | None:
        """What is wrong with the next piece; it is counted where nothing is. Nothing that it says is believed."""
        if not isinstance(size, int) or size < 0 or (self.received and size != self.size):
            return Lost.PROVIDER_ERROR
        if size > self.question.room:
            return Lost.TOO_LARGE
        self.size = size
        too_much = self.received + len(data) > size or not (data or size == 0)
        if too_much or (code != "" and (size > PIECE or len(data) != size)):
            return Lost.PROVIDER_ERROR
        self.received += len(data)
        return None


class Exchange:
    """Sends a payload to providers in their turn and gathers the answers. An answer counts only under the random number
    of its ask, from its provider, while the question is open. Each piece that moves restarts the timeout of an ask;
    the total extension is capped at bytes moved / SLOWEST. A provider that is late is asked nothing else until its
    answer comes, its connection is lost, or as much time again has passed."""

    def __init__(
        self,
        send: Send,
        connected: Callable[[str], bool],
        max_bytes: int,
        poll: float = 0.05,
        ended: Callable[[str], None] = lambda number: None,
        capacity: Callable[[str], int] = lambda name: 1,
        taken: Callable[[str], int] = lambda number: 0,
    ) -> None:
        """`taken` says how many bytes of the question of this number were sent to its provider."""
        self._send = send
        self._connected = connected
        self._max_bytes = max_bytes
        self._poll = poll
        self._ended = ended
        self._taken = taken
        self._open: dict[str, _Open] = {}
        self._fair_queue = FairQueue(capacity)
        self._changed = threading.Condition()

    def ask(
        self,
        names: Sequence[str],
        payload: bytes,
        timeout: float,
        consumer: str = "",
        deliver: Deliver | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[Replies, Failures]:
        """Every name with its reply or the reason why there is none, `timeout` seconds after its turn came, or after
        the last piece of a large question or answer moved. Large answers go to `deliver`, from the thread that took
        them, and are in neither result. Raises ConnectionError once the answers are not `wanted` any more."""
        question = _Question(timeout, min(self._max_bytes, len(payload) + REPLY_ROOM), deliver)
        asked = self._enter(question, list(dict.fromkeys(names)), consumer)
        try:
            while question.open:
                if not wanted():
                    raise ConnectionError("the consumer is gone")
                self._send_those_due(question, payload)
                self._wait(question)
        finally:
            with self._changed:
                for one in list(question.open.values()):
                    self._give_up(one, Lost.NO_ANSWER)
            for number in asked:
                self._ended(number)
        return question.replies, question.failures

    def queues(self) -> dict[str, Queue]:
        with self._changed:
            self._free_queues()
            return self._fair_queue.queues()

    def capacities_changed(self) -> None:
        with self._changed:
            for name in self._fair_queue.queues():
                self._fair_queue.take_turns(name)
            self._changed.notify_all()

    def take(self, name: str, number: object, size: object, code: object, data: bytes) -> bool:
        """The next piece of an answer of so many bytes; False where it belongs to nothing. An answer that is too long,
        or whose pieces do not add up, ends as a failure. A late piece shows that the provider is done."""
        with self._changed:
            found = self._open.get(number) if isinstance(number, str) else None
            if found is None or found.name != name:
                return False
            if not found.wanted:
                self._leave(found)
                return False
            if (fault := found.fault(size, code, data)) is not None:
                self._answer(found, fault)
                return True
            if (deliver := found.deliver) is None:
                found.body += data
                if found.received == found.size:
                    self._answer(found, bytes(found.body) if code == "" else Lost(str(code)))
                return True
            found.delivering = True
        deliver(name, found.size, data)  # which takes its time: meanwhile the provider's next pieces wait
        with self._changed:
            found.delivering = False
            if found.received == found.size:
                self._answer(found, None)
            self._changed.notify_all()
        return True

    def _enter(self, question: _Question, names: Sequence[str], consumer: str) -> list[str]:
        """Opens the question for all who are connected, each with a ticket in its queue; returns their numbers."""
        here = [name for name in names if self._connected(name)]
        question.failures.update({name: Lost.NOT_CONNECTED for name in names if name not in here})
        with self._changed:
            self._free_queues()
            for name in here:
                ticket = self._fair_queue.join(name, consumer)
                one = _Open(name, secrets.token_hex(16), question, ticket)
                self._open[one.number] = question.open[name] = one
            return [one.number for one in question.open.values()]

    def _send_those_due(self, question: _Question, payload: bytes) -> None:
        """Sends to those whose turn has come; their clocks start with that."""
        with self._changed:
            due = [one for one in question.open.values() if one.ticket.state == "asked" and one.until == inf]
            for one in due:
                one.began = time.monotonic()
                one.until = one.began + question.timeout
        for one in due:
            try:
                self._send(one.name, one.number, payload, max(0.0, one.until - time.monotonic()))
            except Exception:
                with self._changed:
                    self._answer(one, Lost.CONNECTION_LOST)

    def _wait(self, question: _Question) -> None:
        """Until something happens or for a moment; then ends whose time is over, or whose provider is gone."""
        with self._changed:
            left = min((one.until for one in question.open.values()), default=0.0) - time.monotonic()
            turn = any(one.ticket.state == "asked" and one.until == inf for one in question.open.values())
            if question.open and left > 0 and not turn:
                self._changed.wait(min(self._poll, left))
            still = list(question.open)
        gone = [name for name in still if not self._connected(name)]
        with self._changed:
            for one in [question.open[name] for name in gone if name in question.open]:
                self._answer(one, Lost.NOT_CONNECTED if one.until == inf else Lost.CONNECTION_LOST)
            for one in list(question.open.values()):
                self._put_off(one)
                if one.until <= time.monotonic() and not one.delivering:
                    self._give_up(one, Lost.NO_ANSWER)
            self._free_queues(gone)

    def _put_off(self, one: _Open) -> None:
        """The deadline of an ask of which something has moved."""
        moved = self._taken(one.number) // PIECE + one.received // PIECE
        if moved > one.moved:
            one.moved, now = moved, time.monotonic()
            at_the_slowest = one.began + moved * PIECE / SLOWEST
            one.until = max(one.until, one.question.timeout + min(now, at_the_slowest))

    def _answer(self, one: _Open, answer: bytes | Lost | None) -> None:
        """Ends an ask, unless it has ended before; None stands for an answer that was delivered."""
        if one.wanted:
            del one.question.open[one.name]
            if isinstance(answer, Lost):
                one.question.failures[one.name] = answer
            elif answer is not None:
                one.question.replies[one.name] = answer
        self._leave(one)

    def _give_up(self, one: _Open, why: Lost) -> None:
        """Nobody waits for this answer any more; where the provider still computes it, its queue stays busy."""
        del one.question.open[one.name]
        one.question.failures[one.name] = why
        one.body.clear()
        if one.until == inf:
            self._leave(one)
        else:
            self._fair_queue.give_up(one.ticket)
            one.until += one.question.timeout

    def _leave(self, one: _Open) -> None:
        one.body.clear()
        self._open.pop(one.number, None)
        self._fair_queue.leave(one.ticket)
        self._changed.notify_all()

    def _free_queues(self, gone: Sequence[str] = ()) -> None:
        """Of late asks that are not waited for any longer, or whose providers are gone."""
        now = time.monotonic()
        for one in list(self._open.values()):
            if not one.wanted and (one.until <= now or one.name in gone):
                self._leave(one)
