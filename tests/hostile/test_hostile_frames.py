"""Frames that no honest side sends, to the two places that read them: the server's door and the local relay."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from databazaar.federation.frames import Channel, ClosedError, Header
from databazaar.federation.guest import (
    ANSWER,
    CHANNEL,
    HERE,
    LARGEST,
    NUMBER,
    SMALL,
    UNREGISTERED_BYTES,
    Guest,
    House,
    UnwelcomeError,
    Verdict,
)
from raw_provider import DATA, HELLO, PING, PREFIX, sfm

OPEN = "0" * 32
TIMES = 50_000


def headers(channel: str = "task", topic: str = "heart_beat", **more: Any) -> dict[str, Any]:
    found = {"channel": channel, "topic": topic, "msg_type": "req", "origin": "bank1", "from": "bank1"}
    found |= {"destination": "server", "to": "server", "req_id": "1"}
    return {**{f"cn__{key}": value for key, value in found.items()}, "cn__route": [["bank1", 1.5]], **more}


def stream(topic: str, number: str = OPEN, channel: str = CHANNEL) -> dict[str, Any]:
    more: dict[str, Any] = {"sm__ch": channel, "sm__tp": topic, NUMBER: number}
    return headers("sm__STREAM", "sm__DATA", **more)


def hello(name: Any = "bank1", **more: Any) -> bytes:
    return sfm(HELLO, None, msgpack.packb({"endpoint_name": name, **more}))


def house(registered: bool = True, revoked: bool = False) -> House:
    return House(
        registered=lambda name: registered,
        revoked=lambda name: revoked,
        expects=lambda name, number: (name, number) == ("bank1", OPEN),
        sends=lambda name, stream: (name, stream) == ("bank1", 7),
        awaits=lambda numbers: numbers == "awaited",
    )


def guest(**more: bool) -> Guest:
    found = Guest("bank1", house(**more))
    assert found.judge(hello()) is Verdict.CHATTER
    return found


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (headers(), Verdict.CHATTER),
        (headers("task", "register"), Verdict.CHATTER),
        (headers("cellnet.channel", "bye"), Verdict.CHATTER),
        (headers("sm__STREAM", "sm__ACK", sm__id=7), Verdict.CHATTER),
        (headers("sm__STREAM", "sm__ERROR", sm__id=7), Verdict.CHATTER),
        (headers("sm__STREAM", "sm__ACK", sm__id=8, sm__em="stop"), Verdict.DROP),
        (headers("sm__STREAM", "sm__ERROR"), Verdict.DROP),
        (stream(HERE), Verdict.CHATTER),
        (stream(ANSWER), Verdict.ANSWER),
        (headers(cn__msg_type="reply", cn__req_id="awaited"), Verdict.CHATTER),
        (headers(client_name="bank1"), Verdict.CHATTER),
        (stream(ANSWER, "1" * 32), Verdict.DROP),
        (stream("other"), Verdict.DROP),
        (stream(ANSWER, channel="aux_communication"), Verdict.DROP),
        (headers(cn__msg_type="reply"), Verdict.DROP),
        (headers(cn__msg_type="return"), Verdict.DROP),
        (headers(cn__origin="bank2"), Verdict.DROP),
        (headers(cn__from="bank2"), Verdict.DROP),
        (headers(client_name="bank2"), Verdict.DROP),
        (headers(cn__destination="bank2"), Verdict.DROP),
        (headers(cn__to="bank2"), Verdict.DROP),
        (headers(cn__route=[["bank2", 1.0]]), Verdict.DROP),
        (headers(cn__route=[["bank1", 1.0], ["bank2", 2.0]]), Verdict.DROP),
        (headers(cn__route=None), Verdict.DROP),
        (headers(cn__conn_url="tcp://elsewhere:1"), Verdict.DROP),
        (headers(cn__secure=True), Verdict.DROP),
        (headers(cn__server_transit_required=True), Verdict.DROP),
        (headers("admin", "command"), Verdict.DROP),
        (headers("cellnet.channel", "bulk"), Verdict.DROP),
        (headers(cn__channel=["task"]), Verdict.DROP),
        (headers(cn__topic=7), Verdict.DROP),
        ({}, Verdict.DROP),
    ],
)
def test_what_a_registered_provider_may_say(head: dict[str, Any], verdict: Verdict) -> None:
    assert guest().judge(sfm(DATA, head, b"x")) is verdict


def test_who_is_not_registered_may_register_and_little_more() -> None:
    newcomer = guest(registered=False)
    assert newcomer.judge(sfm(DATA, headers("task", "challenge"))) is Verdict.CHATTER
    assert newcomer.judge(sfm(PING)) is Verdict.CHATTER
    for head in (stream(ANSWER), stream(HERE), headers("sm__STREAM", "sm__ACK")):
        assert newcomer.judge(sfm(DATA, head)) is Verdict.DROP
    with pytest.raises(UnwelcomeError, match="does not register"):
        for _ in range(UNREGISTERED_BYTES // 1000):
            newcomer.judge(sfm(DATA, headers(), bytes(1000)))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "no prefix"),
        (bytes(LARGEST + 1), "over the size limit"),
        (sfm(DATA, headers())[:-1], "lies about its length"),
        (sfm(DATA, headers()) + b"x", "lies about its length"),
        (PREFIX.pack(16, 9, DATA, 0, 0, 1, 0, 0), "lies about its length"),
        (sfm(DATA), "header is not valid"),
        (sfm(DATA, [1]), "header is not valid"),  # type: ignore[arg-type]
        (PREFIX.pack(1016, 1000, DATA, 0, 0, 1, 0, 0) + b"\x91" * 1000, "header is not valid"),
        (sfm(DATA, headers(), bytes(SMALL)), "no answer is over the size limit"),
        (sfm(DATA, stream(HERE), bytes(SMALL)), "no answer is over the size limit"),
        (sfm(5, None, msgpack.packb({"endpoint_name": "bank1"})), "of kind 5"),
        (sfm(2), "of kind 2"),
        (hello(), "claimed endpoint 'bank1'"),
    ],
)
def test_what_ends_a_connection(frame: bytes, why: str) -> None:
    with pytest.raises(UnwelcomeError, match=why):
        guest().judge(frame)


@pytest.mark.parametrize("name", ["bank2", "bank1.child", "server", "", None, 7, ["bank1"], "x" * 5000])
def test_who_claims_another_name_than_its_certificate_s(name: Any) -> None:
    with pytest.raises(UnwelcomeError, match="authenticated as 'bank1'"):
        Guest("bank1", house()).judge(hello(name))


def test_who_says_nothing_of_itself_and_who_is_revoked() -> None:
    with pytest.raises(UnwelcomeError, match="did not say who it is"):
        Guest("bank1", house()).judge(sfm(PING))
    with pytest.raises(UnwelcomeError, match="revoked"):
        Guest("bank1", house(revoked=True)).judge(hello())
    assert Guest("bank1", House()).judge(hello()) is Verdict.CHATTER, "before the server has started, no more than that"


@pytest.mark.parametrize("key", ["cn__origin", "cn__to", "cn__channel"])
def test_no_guest_writes_lines_of_its_own_into_the_log(key: str, caplog: pytest.LogCaptureFixture) -> None:
    line = "x\n2026-11-16 INFO bank2 is revoked\x1b[2J"
    assert guest().judge(sfm(DATA, {**headers(), key: line})) is Verdict.DROP
    assert [record.getMessage().isprintable() for record in caplog.records] == [True]


def test_no_mutated_frame_passes_in_another_s_name() -> None:
    """Whatever is done to a frame, it is dropped, ends the connection, or says what this guest may say."""
    rng = random.Random(12)
    nested: Any = "x"
    for _ in range(100):
        nested = [nested]
    heads = [headers(), headers("task", "register"), stream(ANSWER), stream(HERE), headers("admin", "x")]
    seeds = [sfm(DATA, head, b"body" * 5) for head in heads]
    seeds += [sfm(DATA, headers(cn__route=nested)), sfm(DATA, headers(more={"a": nested})), sfm(PING)]
    verdicts = dict.fromkeys(Verdict, 0)
    for turn in range(TIMES):
        frame = bytearray(seeds[turn % len(seeds)])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(frame))
            match rng.randrange(4):
                case 0:
                    frame[at] = rng.randrange(256)
                case 1:
                    frame[at:at] = rng.randbytes(rng.randrange(1, 5))
                case 2:
                    del frame[at : at + rng.randrange(1, 9)]
                case 3:
                    frame[at : at + 5] = rng.choice([b"bank2", b"\xff" * 5, b"\x91" * 5, b"\xdf\xff\xff\xff\xff"])
        if rng.randrange(2) and len(frame) > 4:
            frame[:4] = struct.pack(">I", len(frame))
        visitor = guest()
        try:
            verdict = visitor.judge(bytes(frame))
        except UnwelcomeError:
            continue
        verdicts[verdict] += 1
        if verdict is not Verdict.DROP and frame[6] == DATA:
            head = msgpack.unpackb(bytes(frame[16 : 16 + PREFIX.unpack_from(frame)[1]]))
            assert (head["cn__origin"], head["cn__from"], head["cn__destination"]) == ("bank1", "bank1", "server")
            assert verdict is Verdict.CHATTER or head[NUMBER] == OPEN
    assert all(count > 100 for count in verdicts.values()), verdicts


def relay_frame(text: bytes, size: int = 0) -> bytes:
    return struct.pack(">IQ", len(text), size) + text


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"op":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"1" * 100_000, b"{}}"],
)
def test_a_deeply_nested_header_closes_the_relay_s_connection(text: bytes) -> None:
    with pytest.raises(ClosedError, match="no JSON header"):
        receive(relay_frame(text))


def receive(raw: bytes) -> tuple[Header, bytes]:
    one, other = socket.socketpair()
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
        one.sendall(raw)
        one.close()
        return Channel(other, max_bytes=1000).receive()


def test_mutated_frames_of_the_relay_are_read_or_close_it() -> None:
    rng = random.Random(12)
    good = (
        relay_frame(json.dumps({"op": "request", "names": ["a"], "timeout": 1.5, "x": [[[{}]]]}).encode(), 4) + b"body"
    )
    mutate: list[Callable[[bytearray], object]] = [
        lambda frame: frame.__setitem__(rng.randrange(len(frame)), rng.randrange(256)),
        lambda frame: frame.__delitem__(slice(rng.randrange(len(frame)), None)),
        lambda frame: frame.insert(rng.randrange(len(frame)), rng.choice(b'[]{}",:')),
    ]
    read = 0
    for _ in range(TIMES // 10):
        frame = bytearray(good)
        rng.choice(mutate)(frame)
        try:
            header, body = receive(bytes(frame))
        except ClosedError:
            continue
        read += 1
        assert isinstance(header, dict) and len(body) <= 1000
    assert read > 100
