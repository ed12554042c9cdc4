"""Several consumers over the same providers: every provider has a lane, in which asks wait for their turn.

Consumers take turns, one ask each, whoever came first; so one with many asks delays another by one of them. Only so
many asks of a lane are under way at a time, and an ask's clock does not run before its turn has come: whoever waits is
late, and never void. No clock, no network and no thread in here.
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
    """One ask's place in the lane of its provider.

    It is `waiting`, then `asked`. An ask that was given up while its provider still computes is `late`: it keeps the
    lane busy, so that the next one is not charged for it. At last it is `over`.
    """

    provider: str
    consumer: str
    state: State = "waiting"


@dataclass(frozen=True)
class Queue:
    """A provider's lane as others see it: how many asks of each consumer wait, are under way, or came too late and
    are still computed; and how many may be under way."""

    capacity: int
    waiting: dict[str, int]
    asked: dict[str, int]
    late: dict[str, int]


@dataclass
class _Lane:
    waiting: dict[str, deque[Ticket]] = field(default_factory=dict)  # in the order of their turns
    under_way: list[Ticket] = field(default_factory=list)

    def take_turns(self, capacity: int) -> None:
        while self.waiting and len(self.under_way) < capacity:
            consumer = next(iter(self.waiting))
            places = self.waiting.pop(consumer)
            place = places.popleft()
            place.state = "asked"
            self.under_way.append(place)
            if places:
                self.waiting[consumer] = places


class FairQueue:
    """The lanes of all providers; `capacity` says how many asks of a provider may be under way."""

    def __init__(self, capacity: Callable[[str], int] = lambda provider: 1) -> None:
        self._capacity = capacity
        self._lanes: dict[str, _Lane] = {}

    def join(self, provider: str, consumer: str) -> Ticket:
        """A place at the end of what this consumer asks of the provider; `asked` at once where nobody is before it."""
        place = Ticket(provider, consumer)
        self._lanes.setdefault(provider, _Lane()).waiting.setdefault(consumer, deque()).append(place)
        self.take_turns(provider)
        return place

    def leave(self, place: Ticket) -> None:
        """The ask has ended, one way or the other, and whose turn it is may go."""
        if place.state == "over":
            return
        lane = self._lanes[place.provider]
        if place.state == "waiting":
            places = lane.waiting[place.consumer]
            places.remove(place)
            if not places:
                del lane.waiting[place.consumer]
        else:
            lane.under_way.remove(place)
        place.state = "over"
        self.take_turns(place.provider)

    def give_up(self, place: Ticket) -> None:
        """Nobody wants the answer any more. One that is under way keeps the lane busy until it leaves."""
        if place.state == "asked":
            place.state = "late"
        else:
            self.leave(place)

    def take_turns(self, provider: str) -> None:
        """Lets go whose turn it is; also to be called where the capacity has changed."""
        lane = self._lanes.get(provider)
        if lane is None:
            return
        lane.take_turns(max(1, self._capacity(provider)))
        if not lane.waiting and not lane.under_way:
            del self._lanes[provider]

    def queues(self) -> dict[str, Queue]:
        """All lanes in which there is anything, by provider."""
        return {provider: self._queue(provider, lane) for provider, lane in sorted(self._lanes.items())}

    def _queue(self, provider: str, lane: _Lane) -> Queue:
        waiting = {consumer: len(places) for consumer, places in lane.waiting.items()}
        asked, late = (
            dict(Counter(place.consumer for place in lane.under_way if place.state == state))
            for state in ("asked", "late")
        )
        return Queue(max(1, self._capacity(provider)), waiting, asked, late)
