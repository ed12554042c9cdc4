"""Frames and bundles that no honest side sends: to the providers' streams, and between a hub and an own arbiter."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.federation.frames import (
    PIECE,
    Header,
    WireError,
    decode_bundle,
    decode_frame,
    encode_bundle,
    encode_frame,
)
from databazaar.federation.wire import body_frames, receive_body

TIMES = 5_000
NESTED = [b"[" * 60_000, b'{"a":' * 10_000, b'{"op":' + b"[" * 30_000 + b"]" * 30_000 + b"}", b"1" * 6_000, b"{}}"]


@given(st.binary(max_size=300), st.dictionaries(st.text(max_size=9), st.integers()))
def test_a_frame_is_read_as_it_was_written(piece: bytes, header: Header) -> None:
    found, body = decode_frame(encode_frame(header, piece))
    assert found == header and bytes(body) == piece


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "lies about its length"),
        (b"\x00\x00\x00", "lies about its length"),
        (struct.pack(">I", 9) + b"{}", "lies about its length"),
        (struct.pack(">I", 2**31) + b"{}", "lies about its length"),
        (encode_frame({}, bytes(2 * PIECE)), "lies about its length"),
        (struct.pack(">I", 2) + b"[]", "no JSON header"),
        (struct.pack(">I", 2) + b"\xff\xff", "no JSON header"),
        *((struct.pack(">I", len(text)) + text, "no JSON header") for text in NESTED),
    ],
)
def test_a_frame_that_is_none_ends_the_stream(message: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        decode_frame(message)


def test_mutated_frames_are_read_or_end_the_stream() -> None:
    rng = random.Random(12)
    good = encode_frame({"op": "answer", "number": "0" * 32, "size": 4, "code": "", "x": [[{}]]}, b"body")
    read = 0
    for _ in range(TIMES):
        message = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            rng.choice(mutations(rng))(message)
        try:
            assert len(decode_frame(bytes(message))[1]) <= PIECE
        except WireError:
            continue
        read += 1
    assert read > 10


def mutations(rng: random.Random) -> list[Callable[[bytearray], object]]:
    return [
        lambda frame: frame.__setitem__(rng.randrange(len(frame)), rng.randrange(256)),
        lambda frame: frame.__delitem__(slice(1 + rng.randrange(len(frame)), None)),
        lambda frame: frame.insert(rng.randrange(len(frame)), rng.choice(b'[]{}",:')),
    ]


@pytest.mark.parametrize("size", [-1, 1001, "10", None, 2**62])
def test_a_message_of_no_size_that_it_may_have_takes_no_memory(size: object) -> None:
    with pytest.raises(WireError, match="over the limit of 1000 bytes"):
        receive_body(iter([encode_frame({"size": size}, b"x")]), 1000)


def test_a_message_is_as_long_as_it_says() -> None:
    body = bytes(3 * PIECE + 5)
    frames = [frame for _, frame in body_frames({"op": "x"}, body)]
    assert len(frames) == 4 and bytes(receive_body(iter(frames), len(body))[1]) == body
    with pytest.raises(StopIteration):
        receive_body(iter(frames[:-1]), len(body))
    with pytest.raises(OverflowError):
        receive_body(iter(frames[:3] + frames), len(body))


@pytest.mark.parametrize("text", NESTED)
def test_a_deeply_nested_header_is_no_bundle(text: bytes) -> None:
    with pytest.raises(ValueError, match="no bundle"):
        decode_bundle(struct.pack(">I", len(text)) + text)


def test_mutated_bundles_are_read_or_refused() -> None:
    rng = random.Random(12)
    good, read = encode_bundle({"op": "ask", "timeout": 1.5, "x": [[[{}]]]}, {"north": b"body", "south": b""}), 0
    for _ in range(TIMES):
        bundle = bytearray(good)
        rng.choice(mutations(rng))(bundle)
        try:
            found, parts = decode_bundle(bytes(bundle))
        except ValueError:
            continue
        read += 1
        assert isinstance(found, dict) and sum(map(len, parts.values())) <= len(bundle)
    assert read > 100
