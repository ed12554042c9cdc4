"""The seam: ask providers by name, get bytes back, by a deadline. No network in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from databazaar.federation.exchange import Failures, Lost, Replies


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
