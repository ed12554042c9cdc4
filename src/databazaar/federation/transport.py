"""The seam: ask providers by name, get bytes back, by a deadline; and why an ask ended without an update. No network.

The ledger keeps the codes. They have neither times nor measurements, so that a run has the same ledger wherever it
is played again. Neither torch nor gRPC is needed to read them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from databazaar.codes import QUARANTINED, Code
from databazaar.federation.frames import PIECE


class Fault(StrEnum):
    """All that can be wrong with a message: the codes of MessageError."""

    NOT_A_MESSAGE = "not-a-message"
    BAD_HEADER = "bad-header"
    BAD_TENSOR = "bad-vector"
    NOT_FINITE = "not-finite"
    OTHER_SHAPE = "other-shape"
    OTHER_ROUND = "other-round"
    OTHER_PROVIDER = "other-provider"
    OTHER_QUESTION = "other-question"
    NOT_SIGNED = "not-signed"


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


class MessageError(ValueError):
    """Bytes that are no message of ours. Its text is the code of a Fault."""


REFUSED, FAILED = "refused", "provider-failed"
UNANSWERED = frozenset({*Lost, QUARANTINED.name})
"""No reply came back, or nobody was asked."""
_FAULTS = UNANSWERED | {*Fault, "beyond-limit", FAILED}


def declined(status: str, code: str) -> Code:
    """A reply that brings nothing: the provider says no, or that its computation failed."""
    return Code.of(REFUSED if status == "refused" else FAILED, why=code)


def is_honest(code: Code | None) -> bool:
    """Whether a code of the ledger tells of no fault of the provider's: a refusal, or a reason of the market's."""
    return code is None or code.name not in _FAULTS


class Transport(Protocol):
    """What the arbiter's side needs of a network."""

    look_again: float = 0.1
    """Seconds between two looks at who is connected."""

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        """Ask each name once. Every name comes back either with its reply or with the reason why there is none, which
        may be that `timeout` seconds have passed since it was asked. It may wait for its turn before."""
        ...

    def connected(self) -> list[str]:
        """Who could be asked now."""
        ...

    def wait_for(self, names: Sequence[str], timeout: float) -> list[str]:
        """Wait until all `names` are connected; returns those that are not when the time is up."""
        until = time.monotonic() + timeout
        while missing := sorted(set(names) - set(self.connected())):
            if time.monotonic() > until:
                break
            time.sleep(self.look_again)
        return missing

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
