"""The queue among consumers: nobody who asks often keeps another waiting for more than one turn."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from databazaar.service.errors import TooManyError
from databazaar.service.notary.answerers import MOST_OF_ONE, MOST_WAITING, ResponderQueue


def waiting(turns: ResponderQueue, number: int) -> None:
    """Until so many wait."""
    while len(turns._waiting) != number:
        time.sleep(0.001)


def test_consumers_are_served_by_turns_and_each_in_order() -> None:
    turns, served = ResponderQueue(1, 60.0), list[str]()

    def ask(consumer: str, name: str) -> None:
        with turns.turn(consumer):
            served.append(name)

    threads = []
    with turns.turn("a"):
        for place, (consumer, name) in enumerate([("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2"), ("c", "c1")]):
            threads.append(threading.Thread(target=ask, args=(consumer, name)))
            threads[-1].start()
            waiting(turns, place + 1)
    for thread in threads:
        thread.join()
    assert served == ["b1", "c1", "a1", "b2", "a2"]


def test_as_many_as_there_are_places_are_served_at_once() -> None:
    turns = ResponderQueue(2, 0.01)
    with turns.turn("a"), turns.turn("a"):
        with pytest.raises(TooManyError, match="ask again in a second"), turns.turn("b"):
            pass
        assert turns._waiting == {}
    with turns.turn("b"):
        pass


def test_few_wait_and_of_one_consumer_fewer() -> None:
    turns = ResponderQueue(1, 60.0)
    consumers = [str(number // MOST_OF_ONE) for number in range(MOST_WAITING)]

    def ask(consumer: str) -> None:
        with turns.turn(consumer):
            pass

    threads = [threading.Thread(target=ask, args=(consumer,)) for consumer in consumers]
    with ExitStack() as stack:
        stack.enter_context(turns.turn("x"))
        for place, thread in enumerate(threads):
            thread.start()
            waiting(turns, place + 1)
            if place + 1 == MOST_OF_ONE:
                with pytest.raises(TooManyError), turns.turn(consumers[0]):
                    pass
        with pytest.raises(TooManyError), turns.turn("y"):
            pass
    for thread in threads:
        thread.join()
