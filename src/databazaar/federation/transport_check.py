"""The contract of a transport, in memory or over a network."""

from __future__ import annotations

from collections.abc import Sequence

from databazaar.federation.exchange import Lost
from databazaar.federation.payloads import PIECE
from databazaar.federation.transport import Transport

ABSENT = "nobody-of-this-name"


def check_transport(transport: Transport, names: Sequence[str], failing: str = "", timeout: float = 20.0) -> None:
    """Asks `names`, who are connected and answer a question with the bytes of the question, and `failing`, whose
    handler raises an exception; and closes the transport. Raises AssertionError where it does not do what it should."""
    here = sorted(names)
    assert transport.wait_for(here, timeout) == [], "everybody who is connected is found"
    assert set(here) <= set(transport.connected()) and transport.connected() == sorted(transport.connected())
    assert transport.wait_for([*here, ABSENT], 0.1) == [ABSENT], "who does not come is named when the time is up"
    for payload in (b"", b"question", bytes(range(256)) * (3 * PIECE // 256) + b"large"):
        asked = [*here, here[0], ABSENT, *([failing] if failing else [])]
        replies, failures = transport.request(asked, payload, timeout)
        assert sorted([*replies, *failures]) == sorted(set(asked)), "every name has one reply or one failure"
        assert failures == {ABSENT: Lost.NOT_CONNECTED, **({failing: Lost.PROVIDER_ERROR} if failing else {})}
        assert all(memoryview(reply) == payload for reply in replies.values()), "bytes arrive as they were sent"
    assert transport.request([], b"question", timeout) == ({}, {}), "nobody is asked, and nobody answers"
    transport.close()
    transport.close()
