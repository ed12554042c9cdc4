"""Large messages in pieces: what comes together, what is refused, and how much is held. No processes in here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from databazaar.codes import Code
from databazaar.engines.protocol import Ask, Replies
from databazaar.federation import exchange, frames
from databazaar.federation import wire as wires_module
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.exchange import Exchange
from databazaar.federation.frames import ChunkAssembler, decode_frame
from databazaar.federation.messages import (
    OracleMessage,
    TaskMessage,
    decode_request,
    decode_vector,
    encode_request,
    vector_parts,
)
from databazaar.federation.provider import Incoming
from databazaar.federation.transport import Failures, LocalTransport, Lost
from databazaar.federation.wire import Outbox, body_frames
from databazaar.federation.worker import ProviderWorker

SMALL = 16
"""Bytes of a piece in these tests."""
ORACLE = OracleMessage(kind="full-gradient", step=0.3, batch_size=1, epochs=1, momentum=0.0)
TASK = TaskMessage(model=None, loss="squared-error", oracle=ORACLE, table=None)


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (frames, wires_module, exchange):
            patch.setattr(module, "PIECE", SMALL)
        yield


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from([torch.float32, torch.float64]))
def test_a_vector_is_sent_as_safetensors_writes_it(numbers: list[float], kind: torch.dtype) -> None:
    vector = torch.tensor(numbers, dtype=kind)
    assert b"".join(vector_parts(vector)) == save({"w": vector})


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(at)]


@given(st.text(max_size=40), st.integers(1, 30), st.lists(st.integers(8, 500)))
def test_a_message_that_came_down_in_pieces_is_read_where_it_lies(consumer: str, count: int, cuts: list[int]) -> None:
    request = FederatedEngine(TASK, [], LocalTransport({}), consumer=consumer)._request(3, 7, "update")
    params = torch.arange(count, dtype=torch.float32)
    data = encode_request(request, params)
    landing = ChunkAssembler(len(data))
    done = [landing.add(piece) for piece in [data[:8], *split(data[8:], cuts)]]
    assert done == [False] * (len(done) - 1) + [True] and bytes(landing.body) == data
    asked = decode_request(landing.body)
    assert asked[0] == request and asked[1] is not None and torch.equal(asked[1], params)
    asked[1].add_(1)
    again = decode_request(landing.body)[1]
    assert again is not None and torch.equal(again, params + 1), "it is the same memory"
    with pytest.raises(OverflowError):
        landing.add(b"x")


def test_numbers_that_are_not_finite_are_found_wherever_they_are() -> None:
    for bad in (float("nan"), float("inf"), -float("inf")):
        for at in range(5):
            vector = torch.ones(5)
            vector[at] = bad
            with pytest.raises(ValueError, match="not-finite"):
                decode_vector(b"".join(vector_parts(vector)), 0)


@given(st.binary(max_size=10 * SMALL))
def test_a_message_goes_in_frames_and_comes_together(body: bytes) -> None:
    made, done = b"", 0
    for done, frame in body_frames({"op": "x"}, body):
        header, piece = decode_frame(frame)
        assert (header["op"], header["size"], header["at"]) == ("x", len(body), len(made))
        made += piece
        assert len(made) == done
    assert made == body and done == len(body)


def test_an_outbox_holds_few_frames_and_who_fills_it_waits() -> None:
    outbox, taken = Outbox(2), list[bytes]()
    frames = [str(place).encode() for place in range(50)]

    def fill() -> None:
        for frame in frames:
            outbox.put(frame)
        outbox.end()

    thread = threading.Thread(target=fill)
    thread.start()
    for frame in outbox:
        assert len(outbox._frames) <= 2
        taken.append(frame)
    thread.join(90)
    assert taken == frames
    full = Outbox(1)
    assert full.put(b"x") and not full.put(b"y", 0.01), "nobody takes them, so nobody is expected to"
    assert not full.put(b"z") and list(full) == []


Wire = list[tuple[int, str, bytes]]


def honest(body: bytes, step: int = SMALL) -> Wire:
    return [(len(body), "", body[at : at + step]) for at in range(0, len(body), step)]


@st.composite
def wires(draw: st.DrawFn) -> tuple[bytes, Wire]:
    """An honest answer of several pieces, and what somebody makes of it: twice, left out, lied about."""
    body = draw(st.binary(min_size=SMALL + 1, max_size=6 * SMALL))
    wire = honest(body)
    for _ in range(draw(st.integers(0, 2))):
        at, other = (draw(st.integers(0, len(wire) - 1)) for _ in range(2))
        match draw(st.sampled_from(["twice", "drop", "size", "more", "code", "empty"])):
            case "twice":
                wire.insert(other, wire[at])
            case "drop":
                wire = wire[:at] + wire[at + 1 :] or wire
            case "size":
                wire[at] = (draw(st.integers(-5, 10 * SMALL)), *wire[at][1:])
            case "more":
                wire[at] = (*wire[at][:2], wire[at][2] + b"more")
            case "code":
                wire[at] = (wire[at][0], "provider-error", wire[at][2])
            case "empty":
                wire[at] = (*wire[at][:2], b"")
    return body, wire


class Line:
    """An exchange whose provider's answers, and whose clock, are in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.taken, self.numbers = 1000.0, 0, list[str]()
        self.asked, self.beats = threading.Event(), threading.Semaphore(0)
        self.delivered = b""
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(exchange, "time", clock)
        monkeypatch.setattr(exchange, "SLOWEST", SMALL)
        self.exchange = Exchange(
            self._send,
            lambda name: True,
            10**6,
            poll=0.001,
            taken=lambda number: self._beat(),
        )

    def _beat(self) -> int:
        self.beats.release()
        return self.taken

    def _send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        self.numbers.append(number)
        self.asked.set()

    def looked(self) -> None:
        """Waits until the exchange has looked at the clock as it is now, twice over."""
        while self.beats.acquire(blocking=False):
            pass
        for _ in range(4):
            assert self.beats.acquire(timeout=90)

    def deliver(self, name: str, size: int, data: bytes) -> None:
        self.delivered += data

    def ask(self, size: int, timeout: float) -> tuple[threading.Thread, list[tuple[Any, Failures]]]:
        got: list[tuple[Any, Failures]] = []

        def run() -> None:
            got.append(self.exchange.ask(["a"], bytes(size), timeout, "", self.deliver))

        thread = threading.Thread(target=run)
        thread.start()
        assert self.asked.wait(90)
        return thread, got


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(monkeypatch)


def test_a_deadline_is_put_off_by_what_moves_and_a_large_answer_is_passed_on(line: Line) -> None:
    body = bytes(range(100))
    thread, got = line.ask(100, timeout=10.0)
    for taken in (SMALL, 3 * SMALL, 6 * SMALL):
        line.now += 1.0
        line.taken = taken
        line.looked()
    line.now = 1003.0 + 9.0
    line.looked()
    assert not got, "ten seconds are over since it was asked, and not since the question moved"
    for wire in honest(body):
        line.now += 0.9
        line.exchange.take("a", line.numbers[0], *wire)
        if len(line.delivered) < len(body):
            line.looked()
    thread.join(90)
    assert got == [({}, {})] and line.delivered == body


def test_silence_ends_a_large_answer_and_what_came_of_it_is_dropped(line: Line) -> None:
    thread, got = line.ask(100, timeout=10.0)
    line.exchange.take("a", line.numbers[0], *honest(bytes(100))[0])
    line.looked()
    line.now += 10.5
    thread.join(90)
    assert got == [({}, {"a": Lost.NO_ANSWER})]


def test_who_sends_a_piece_now_and_then_does_not_hold_an_ask_open_for_ever(line: Line) -> None:
    body = bytes(100)
    thread, got = line.ask(100, timeout=10.0)
    for number, wire in enumerate(honest(body)):
        line.now += 9.0
        line.exchange.take("a", line.numbers[0], *wire)
        if number == 1:
            break
        line.looked()
    thread.join(90)
    assert got == [({}, {"a": Lost.NO_ANSWER})], "two pieces may take two seconds at the slowest, beside the deadline"


@given(wires())
@settings(max_examples=100, deadline=None)
def test_pieces_make_the_answer_or_end_it(made: tuple[bytes, Wire]) -> None:
    body, pieces = made
    with pytest.MonkeyPatch.context() as patch:
        line = Line(patch)
        thread, got = line.ask(8 * SMALL, timeout=10.0)
        for piece in pieces:
            line.exchange.take("a", line.numbers[0], *piece)
        line.now += 1e9
        thread.join(90)
    replies, failures = got[0]
    if pieces == honest(body):
        assert (replies, failures) == ({}, {}) and line.delivered == body
    elif not failures and not replies:
        assert len(line.delivered) == pieces[0][0], "whatever it is, it is as long as was said"
    assert len(line.delivered) <= 8 * SMALL + exchange.REPLY_ROOM


def test_a_provider_holds_no_more_of_what_is_announced_than_it_may() -> None:
    incoming = Incoming(most_bytes=100)
    assert incoming.add("lost", 0, 60, b"a" * 30) is None
    assert incoming.add("first", 0, 60, b"a" * 30) is None, "the two are more than 100: the older one is let go"
    assert incoming.add("lost", 30, 60, b"a" * 30) is None, "what comes of it later belongs to nothing"
    assert incoming.add("huge", 0, 101, b"b") is None
    assert incoming.add("first", 0, 40, b"c" * 41) is None, "more than was announced"
    assert incoming.add("second", 0, 40, b"d" * 39) is None
    whole = incoming.add("second", 39, 40, b"d")
    assert whole is not None and bytes(whole) == b"d" * 40


def test_rows_are_collected_as_others_collect_them() -> None:
    def oracle(sign: float) -> Any:
        return lambda w: np.full_like(w, np.nan) if sign == 0 else sign * w

    names, signs = ["a", "b", "c", "d"], [1.0, 0.0, -2.0, 1e20]
    handlers = {name: ProviderWorker(name, oracle(sign)) for name, sign in zip(names, signs, strict=True)}
    engine = FederatedEngine(TASK, names, LocalTransport(handlers))
    ask = Ask(torch.arange(1, 6, dtype=torch.float32), [3, 0, 1, 2], 1, 7)
    found = engine.query(ask)
    failed = Code.of("provider-failed", why="computation-failed")
    expected = Replies.of(ask, [failed, ask.params, failed, -2 * ask.params])
    assert torch.equal(found.updates, expected.updates) and found.failures == expected.failures
