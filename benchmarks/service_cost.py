"""What a hub's own process works for what people ask of it, in seconds of CPU: times say little on a busy machine.

Nothing is played meanwhile. Rounds are written into jobs' folders as runners would, and people look on.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from databazaar.service.hub.progress import ProgressLog
from databazaar.service.settings import Settings
from service_load import PLACES
from service_market import Bought

COMING = 2.0
"""Seconds that viewers have to come."""
PER_SECOND = 30.0
"""Rounds of a job."""
ROUND: dict[str, Any] = {
    "spent": 90000,
    "asked": 120000,
    "budget": 240000,
    "utility": -0.21337890625,
    "loss": 0.21337890625,
    "paid": ["alder-bank-cards", "birch-bank-cards", "cedar-bank-cards"],
    "flagged": [],
    "drawn": ["alder-bank-cards", "birch-bank-cards", "cedar-bank-cards", "elm-bank-cards"],
}


def cost(
    settings: Settings, cpu: Callable[[], float], bought: Sequence[Bought], people: int, seconds: float
) -> dict[str, float]:
    """Of the hub: percent of a core while it is idle, milliseconds for a call, microseconds for an event that reaches
    one viewer. `bought` are jobs that are neither over nor played, and `cpu` tells what the hub has worked so far."""
    began, before = time.monotonic(), cpu()
    time.sleep(seconds)
    idle = (cpu() - before) / (time.monotonic() - began)

    def since(began: float, before: float) -> float:
        return cpu() - before - idle * (time.monotonic() - began)

    calls = len(PLACES) * max(1, round(3 * seconds))
    _call(settings.address, bought, 2 * len(PLACES))  # the first ones are slower
    began, before = time.monotonic(), cpu()
    _call(settings.address, bought, calls)
    call = since(began, before) / calls
    with _played(settings, bought), _watched(settings.address, bought, people) as seen:
        time.sleep(COMING)
        began, before, events = time.monotonic(), cpu(), seen[0]
        time.sleep(seconds)
        watching, events = since(began, before), seen[0] - events
    figures = {"idle_percent": 100 * idle, "call_ms": 1e3 * call, "event_us": 1e6 * watching / max(1, events)}
    return {**{name: round(value, 2) for name, value in figures.items()}, "calls": calls, "events": events}


def _call(address: str, bought: Sequence[Bought], count: int) -> None:
    """All places in turn, over one connection."""
    places = list(PLACES.values())
    with httpx.Client(base_url=address, timeout=60.0) as client:
        for number in range(count):
            one = bought[number % len(bought)]
            path = places[number % len(places)].format(job=one.job_id)
            client.get(path, headers={"Authorization": f"Bearer {one.token}"}).raise_for_status()


@contextmanager
def _played(settings: Settings, bought: Sequence[Bought]) -> Iterator[None]:
    """Rounds are told of these jobs meanwhile."""
    over = threading.Event()

    def tell() -> None:
        for one in bought:
            settings.job_folder(one.job_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        tellers = [ProgressLog(settings.job_folder(one.job_id)) for one in bought]
        number = 0
        while not over.wait(1 / PER_SECOND):
            number += 1
            for teller in tellers:
                teller.add({"round": number, **ROUND})

    with _beside(tell, over):
        yield


@contextmanager
def _watched(address: str, bought: Sequence[Bought], people: int) -> Iterator[list[int]]:
    """People look on, and how many events with rounds they have got is in the list."""
    host, over, seen = urlsplit(address).netloc, threading.Event(), [0]
    name, _, port = host.partition(":")
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for place in range(people):
            one = bought[place % len(bought)]
            asked = (
                f"GET /v1/jobs/{one.job_id}/live HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {one.token}\r\n\r\n"
            )
            connection = stack.enter_context(socket.create_connection((name, int(port))))
            connection.sendall(asked.encode())
            selector.register(connection, selectors.EVENT_READ)

        def read() -> None:
            while not over.is_set():
                for key, _ in selector.select(0.2):
                    seen[0] += key.fileobj.recv(2**18).count(b"event: rounds")  # type: ignore[union-attr]

        with _beside(read, over):
            yield seen


@contextmanager
def _beside(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
