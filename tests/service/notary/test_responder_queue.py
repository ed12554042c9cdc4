"""The queue among consumers: nobody who asks often keeps another waiting for more than one turn."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from databazaar.service.errors import TooManyError
from databazaar.service.hub.children import MOST_WAITING, Turns
from databazaar.service.notary.answerers import FULL


def waiting(turns: Turns, number: int) -> None:
    """Until so many wait."""
    while len(turns._waiting) != number:
        time.sleep(0.001)


def test_consumers_are_served_by_turns_and_each_in_order() -> None:
    turns, served = Turns(1, 3, FULL, FULL), list[str]()

    def ask(consumer: str, name: str) -> None:
        with turns.turn(consumer, 60.0):
            served.append(name)

    threads = []
    with turns.turn("a", 60.0):
        for place, (consumer, name) in enumerate([("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("c", "c1")]):
            threads.append(threading.Thread(target=ask, args=(consumer, name)))
            threads[-1].start()
            waiting(turns, place + 1)
    for thread in threads:
        thread.join()
    assert served == ["b1", "c1", "a1", "b2", "a2"]


def test_as_many_as_there_are_places_are_served_at_once() -> None:
    turns = Turns(2, 4, FULL, FULL)
    with turns.turn("a", 0.01), turns.turn("a", 0.01):
        with pytest.raises(TooManyError, match="ask again in a second"), turns.turn("b", 0.01):
            pass
        assert turns._waiting == {}
    with turns.turn("b", 0.01):
        pass


def test_few_wait_and_of_one_consumer_fewer() -> None:
    turns, of_one = Turns(1, 2, FULL, "two of yours"), 2
    consumers = [str(number // of_one) for number in range(MOST_WAITING)]

    def ask(consumer: str) -> None:
        with turns.turn(consumer, 60.0):
            pass

    threads = [threading.Thread(target=ask, args=(consumer,)) for consumer in consumers]
    with ExitStack() as stack:
        stack.enter_context(turns.turn("x", 60.0))
        for place, thread in enumerate(threads):
            thread.start()
            waiting(turns, place + 1)
            if place + 1 == of_one:
                with pytest.raises(TooManyError, match="two of yours"), turns.turn(consumers[0], 60.0):
                    pass
        with pytest.raises(TooManyError, match="ask again"), turns.turn("y", 60.0):
            pass
    for thread in threads:
        thread.join()
