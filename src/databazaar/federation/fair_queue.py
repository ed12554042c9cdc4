"""Several consumers over the same providers: every provider has a queue, in which asks wait for their turn.

Consumers take turns, one ask each, in any order; so one with many asks delays another by one of them. Only so
many asks of a queue are under way at a time, and an ask's clock does not run before its turn: one that waits is late,
and never void. No clock, no network and no thread in here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

LONGEST_NAME = 200
"""Signs of a consumer's name."""
State = Literal["waiting", "asked", "late", "over"]


@dataclass(eq=False)
class Ticket:
    """One ask in its provider's queue. It is `late` where it was given up while its provider still computes."""

    provider: str
    consumer: str
    state: State = "waiting"


@dataclass(frozen=True)
class Queue:
    """How many asks of each consumer wait for a provider, are under way, or are late and still computed."""

    capacity: int
    waiting: dict[str, int]
    asked: dict[str, int]
    late: dict[str, int]


@dataclass
class _ProviderQueue:
    waiting: dict[str, deque[Ticket]] = field(default_factory=dict)  # in the order of their turns
    under_way: list[Ticket] = field(default_factory=list)


class FairQueue:
    """The queues of all providers; `capacity` says how many asks of a provider may be under way."""

    def __init__(self, capacity: Callable[[str], int] = lambda provider: 1) -> None:
        self._capacity = capacity
        self._queues: dict[str, _ProviderQueue] = {}

    def join(self, provider: str, consumer: str) -> Ticket:
        """A ticket at the end of what this consumer asks of the provider; `asked` at once where nobody is before it."""
        ticket = Ticket(provider, consumer)
        self._queues.setdefault(provider, _ProviderQueue()).waiting.setdefault(consumer, deque()).append(ticket)
        self.take_turns(provider)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The ask has ended, one way or the other, and whose turn it is may go."""
        if ticket.state == "over":
            return
        queue = self._queues[ticket.provider]
        if ticket.state == "waiting":
            tickets = queue.waiting[ticket.consumer]
            tickets.remove(ticket)
            if not tickets:
                del queue.waiting[ticket.consumer]
        else:
            queue.under_way.remove(ticket)
        ticket.state = "over"
        self.take_turns(ticket.provider)

    def give_up(self, ticket: Ticket) -> None:
        """Nobody wants the answer any more. One that is under way keeps the queue busy until it leaves."""
        if ticket.state == "asked":
            ticket.state = "late"
        else:
            self.leave(ticket)

    def take_turns(self, provider: str) -> None:
        """Lets go whose turn it is; also to be called where the capacity has changed."""
        queue = self._queues.get(provider)
        if queue is None:
            return
        while queue.waiting and len(queue.under_way) < max(1, self._capacity(provider)):
            consumer = next(iter(queue.waiting))
            tickets = queue.waiting.pop(consumer)
            ticket = tickets.popleft()
            ticket.state = "asked"
            queue.under_way.append(ticket)
            if tickets:
                queue.waiting[consumer] = tickets
        if not queue.waiting and not queue.under_way:
            del self._queues[provider]

    def queues(self) -> dict[str, Queue]:
        """All queues in which there is anything, by provider."""
        found = {}
        for provider, queue in sorted(self._queues.items()):
            waiting = {consumer: len(tickets) for consumer, tickets in queue.waiting.items()}
            asked, late = (
                dict(Counter(ticket.consumer for ticket in queue.under_way if ticket.state == state))
                for state in ("asked", "late")
            )
            found[provider] = Queue(max(1, self._capacity(provider)), waiting, asked, late)
        return found
