"""Frames that no honest side sends, to the two places that read them: the providers' streams and the hub's sockets."""

from __future__ import annotations

import json
import random
import socket
import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.federation.frames import Channel, ClosedError, Header
from databazaar.federation.payloads import PIECE
from databazaar.federation.wire import (
    WireError,
    body_frames,
    decode_frame,
    encode_frame,
    packed_piece,
    plain_piece,
    receive_body,
)

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
    good = encode_frame({"op": "answer", "number": "0" * 32, "size": 4, "code": "", "plain": 4, "x": [[{}]]}, b"body")
    read = 0
    for _ in range(TIMES):
        message = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            rng.choice(mutations(rng))(message)
        try:
            header, piece = decode_frame(bytes(message))
            assert len(plain_piece(header, piece)) <= PIECE
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


@pytest.mark.parametrize("plain", [0, -1, PIECE + 1, "4", 10, 2.0, PIECE])
def test_a_bomb_is_not_set_off(plain: object) -> None:
    """Whatever it says, it is unpacked to no more than it says, and it says no more than a piece."""
    with pytest.raises(WireError, match=r"packed piece (is of no size|is not as long|cannot be unpacked)"):
        plain_piece({"plain": plain}, zlib.compress(bytes(10**7)))
    with pytest.raises(WireError, match="packed piece"):
        plain_piece({"plain": plain}, b"no such thing")


def test_a_packed_piece_with_more_behind_it_is_refused() -> None:
    packed = packed_piece(bytes(range(100)))
    assert plain_piece({"plain": 100}, packed) == bytes(range(100))
    for wrong in (packed + b"x", packed[:-1], packed * 2):
        with pytest.raises(WireError):
            plain_piece({"plain": 100}, wrong)


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


def socket_frame(text: bytes, size: int = 0) -> bytes:
    return struct.pack(">IQ", len(text), size) + text


@pytest.mark.parametrize("text", NESTED)
def test_a_deeply_nested_header_closes_the_connection(text: bytes) -> None:
    with pytest.raises(ClosedError, match="no JSON header"):
        receive(socket_frame(text))


def receive(raw: bytes) -> tuple[Header, bytes]:
    one, other = socket.socketpair()
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
        one.sendall(raw)
        one.close()
        return Channel(other, max_bytes=1000).receive()


def test_mutated_frames_of_a_socket_are_read_or_close_it() -> None:
    rng = random.Random(12)
    header = json.dumps({"op": "request", "names": ["a"], "timeout": 1.5, "x": [[[{}]]]}).encode()
    good, read = socket_frame(header, 4) + b"body", 0
    for _ in range(TIMES):
        frame = bytearray(good)
        rng.choice(mutations(rng))(frame)
        try:
            found, body = receive(bytes(frame))
        except ClosedError:
            continue
        read += 1
        assert isinstance(found, dict) and len(body) <= 1000
    assert read > 100
