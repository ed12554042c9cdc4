"""Questions under way: who was asked, what came back, and why nothing did. No network in here."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from databazaar.federation.fair_queue import FairQueue, Queue, State, Ticket
from databazaar.federation.payloads import PIECE, PayloadTransfer

REPLY_ROOM = 64 * 1024
"""Bytes by which an answer may be longer than its question: an update is as long as the parameters it is for."""
BEAT = 1.0
"""Seconds between two words to one who waits for its answers."""
SLOWEST = 128 * 1024
"""Bytes a second at which a large question or answer has to move on the whole, beside its deadline."""


class Lost(StrEnum):
    """Why no reply came back from a provider, by the codes that travel and that ledgers keep."""

    NOT_CONNECTED = "not-connected"
    CONNECTION_LOST = "connection-lost"
    NO_ANSWER = "no-answer"
    TOO_LARGE = "reply-too-large"
    PROVIDER_ERROR = "provider-error"

    @classmethod
    def _missing_(cls, value: object) -> Lost:
        """Codes that the other side made up are never passed on."""
        return cls.PROVIDER_ERROR


Replies = dict[str, bytes]
"""By name. A large reply is the memory in which it came down, of which `bytes(reply)` makes a copy."""
Failures = dict[str, Lost]
Tell = Callable[[Mapping[str, State]], None]
"""Hears for every name that is still without an answer whether its ask waits or is under way."""
Send = Callable[[str, str, bytes, float], None]
"""Sends a provider, by name, the question of a number, and for how many seconds it is open."""
Deliver = Callable[[str, int, bytes], None]
"""Takes large answers as they come: the provider's name, the answer's size, and the next bytes of it."""
OnTransfers = Callable[[Mapping[str, PayloadTransfer]], None]
"""Hears how far large questions and answers have come, by the provider's name."""


@dataclass
class _Question:
    timeout: float
    size: int
    room: int
    deliver: Deliver | None
    open: dict[str, _Open] = field(default_factory=dict)
    replies: Replies = field(default_factory=dict)
    failures: Failures = field(default_factory=dict)


@dataclass(eq=False)
class _Open:
    """One provider's part in a question. `until` is its deadline once it was sent; where nobody wants it any more, it
    is when the provider's queue is freed."""

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
    """Sends one payload to many, each when its turn in the provider's queue has come, and gathers the answers. Every
    provider gets a random number with every question, and an answer counts only under that number, from that
    provider, while the question is open. The deadline runs from when an ask is sent; every piece of a large question
    or answer that has moved puts it off, in all not further than what has moved may take at the slowest. A provider
    that is late is asked nothing else until its answer comes, its connection is lost, or as much time again has
    passed."""

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
        tell: Tell = lambda states: None,
        deliver: Deliver | None = None,
        watch: OnTransfers = lambda transfers: None,
        send: Send | None = None,
    ) -> tuple[Replies, Failures]:
        """Every name with its reply or the reason why there is none, `timeout` seconds after its turn came, or after
        the last piece of a large question or answer moved. Where there is somebody to deliver to, large answers go
        there, from the thread that took them, and who is neither in the replies nor in the failures has answered.
        Whatever `tell` or `watch` raises ends the question: nobody is there any more to hear the answers."""
        room = min(self._max_bytes, len(payload) + REPLY_ROOM)
        question = _Question(timeout, len(payload), room, deliver)
        asked = self._enter(question, list(dict.fromkeys(names)), consumer)
        told, states = time.monotonic(), dict[str, State]()
        try:
            while question.open:
                self._send_those_due(question, payload, send or self._send)
                before, states = states, self._wait(question)
                if states and (states != before or time.monotonic() - told >= BEAT):
                    told = time.monotonic()
                    tell(states)
                    if transfers := self._transfers(question):
                        watch(transfers)
        finally:
            with self._changed:
                for one in list(question.open.values()):
                    self._give_up(one, Lost.NO_ANSWER)
            for number in asked:
                self._ended(number)
        return question.replies, question.failures

    def queues(self) -> dict[str, Queue]:
        """The queues in which somebody waits or is asked."""
        with self._changed:
            self._free_queues()
            return self._fair_queue.queues()

    def transfers(self) -> dict[str, PayloadTransfer]:
        """Large questions and answers that move, by provider."""
        with self._changed:
            questions = {id(one.question): one.question for one in self._open.values()}
        return {name: moved for question in questions.values() for name, moved in self._transfers(question).items()}

    def capacity_changed(self, name: str) -> None:
        with self._changed:
            self._fair_queue.take_turns(name)
            self._changed.notify_all()

    def take(self, name: str, number: object, size: object, code: object, data: bytes) -> bool:
        """The next piece of an answer of so many bytes; False where it belongs to nothing.

        An answer that is longer than its question allows, or whose pieces do not make what they say, ends as a
        failure. The first piece of a late one shows that the provider is done with it.
        """
        with self._changed:
            if (found := self._find(name, number)) is None:
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

    def _send_those_due(self, question: _Question, payload: bytes, send: Send) -> None:
        """Sends to those whose turn has come; their clocks start with that."""
        with self._changed:
            due = [one for one in question.open.values() if one.ticket.state == "asked" and one.until == inf]
            for one in due:
                one.began = time.monotonic()
                one.until = one.began + question.timeout
        for one in due:
            try:
                send(one.name, one.number, payload, max(0.0, one.until - time.monotonic()))
            except Exception:
                with self._changed:
                    self._answer(one, Lost.CONNECTION_LOST)

    def _wait(self, question: _Question) -> dict[str, State]:
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
            return {name: one.ticket.state for name, one in question.open.items()}

    def _put_off(self, one: _Open) -> None:
        """The deadline of an ask of which something has moved."""
        moved = self._taken(one.number) // PIECE + one.received // PIECE
        if moved > one.moved:
            one.moved, now = moved, time.monotonic()
            at_the_slowest = one.began + moved * PIECE / SLOWEST
            one.until = max(one.until, one.question.timeout + min(now, at_the_slowest))

    def _transfers(self, question: _Question) -> dict[str, PayloadTransfer]:
        with self._changed:
            moving = [one for one in question.open.values() if one.until != inf]
        found = {
            one.name: PayloadTransfer(
                min(self._taken(one.number), question.size), question.size, one.received, one.size
            )
            for one in moving
        }
        return {name: transfer for name, transfer in found.items() if transfer.large}

    def _find(self, name: str, number: object) -> _Open | None:
        found = self._open.get(number) if isinstance(number, str) else None
        return found if found is not None and found.name == name else None

    def _answer(self, one: _Open, answer: bytes | Lost | None) -> None:
        """This is what came of the ask, unless something came of it before; the next may have its turn. None stands
        for an answer that was delivered."""
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
