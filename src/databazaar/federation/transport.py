"""The seam: ask providers by name, get bytes back, by a deadline. No network in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from databazaar.federation.exchange import Failures, Lost, Replies
from databazaar.federation.payloads import PIECE


class Transport(Protocol):
    """What the arbiter's side needs of a network."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        """Ask each name once. Every name comes back either with its reply or with the reason why there is none, which
        may be that `timeout` seconds have passed since it was asked. It may wait for its turn before."""
        ...

    def connected(self) -> list[str]:
        """Who could be asked now."""
        ...

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        """Wait until all `names` are connected; returns those that are not when the time is up."""
        ...

    def close(self) -> None:
        """Let go of the network."""
        ...


class LocalTransport(Transport):
    """Handlers in this process, for tests and for a market at home."""

    def __init__(self, handlers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._handlers = handlers

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        replies: Replies = {}
        failures: Failures = {}
        for name in dict.fromkeys(names):
            if name not in self._handlers:
                failures[name] = Lost.NOT_CONNECTED
                continue
            try:
                replies[name] = self._handlers[name](payload)
            except Exception:
                failures[name] = Lost.PROVIDER_ERROR
        return replies, failures

    def connected(self) -> list[str]:
        return sorted(self._handlers)

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        return sorted(set(names) - set(self._handlers))  # nobody joins later: there is nothing to wait for

    def close(self) -> None:
        pass


def check_transport(transport: Transport, names: Sequence[str], failing: str = "", timeout: float = 20.0) -> None:
    """Asks `names`, who are connected and answer a question with the bytes of the question, and `failing`, whose
    handler raises an exception; and closes the transport. Raises AssertionError where it does not do what it should."""
    here, absent = sorted(names), "nobody-of-this-name"
    assert transport.wait_for(here, timeout) == [], "everybody who is connected is found"
    assert set(here) <= set(transport.connected()) and transport.connected() == sorted(transport.connected())
    assert transport.wait_for([*here, absent], 0.1) == [absent], "who does not come is named when the time is up"
    for payload in (b"", b"question", bytes(range(256)) * (3 * PIECE // 256) + b"large"):
        asked = [*here, here[0], absent, *([failing] if failing else [])]
        replies, failures = transport.request(asked, payload, timeout)
        assert sorted([*replies, *failures]) == sorted(set(asked)), "every name has one reply or one failure"
        assert failures == {absent: Lost.NOT_CONNECTED, **({failing: Lost.PROVIDER_ERROR} if failing else {})}
        assert all(memoryview(reply) == payload for reply in replies.values()), "bytes arrive as they were sent"
    assert transport.request([], b"question", timeout) == ({}, {}), "nobody is asked, and nobody answers"
    transport.close()
    transport.close()
