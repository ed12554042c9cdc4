"""Large messages in pieces: what comes together, what is refused, and how much is held. No processes in here."""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.codes import Code
from databazaar.engines.protocol import Ask, Replies
from databazaar.federation import arriving, exchange, packing, payloads
from databazaar.federation.arriving import Arriving, Chunk, OutOfOrderError
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.exchange import Exchange, Failures, Lost
from databazaar.federation.message_vector import decode_vector, plainly_encoded, vector_parts
from databazaar.federation.messages import OracleMessage, TaskMessage, decode_request, encode_request
from databazaar.federation.outgoing import Outgoing
from databazaar.federation.packing import PackingError, Unpacking, most_packed, pack
from databazaar.federation.payloads import Landing, Transfer, overheard, pieces
from databazaar.federation.provider import Incoming
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker

SMALL = 16
"""Bytes of a piece in these tests."""
ORACLE = OracleMessage(kind="full-gradient", step=0.3, batch_size=1, epochs=1, momentum=0.0)
TASK = TaskMessage(model=None, loss="squared-error", oracle=ORACLE, table=None)


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (payloads, arriving, packing, exchange):
            patch.setattr(module, "PIECE", SMALL)
        patch.setattr(arriving, "MOST_WAITING", 4 * SMALL)
        yield


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from([torch.float32, torch.float64]))
def test_a_vector_is_sent_as_safetensors_writes_it(numbers: list[float], kind: torch.dtype) -> None:
    vector = torch.tensor(numbers, dtype=kind)
    assert b"".join(vector_parts(vector)) == plainly_encoded(vector)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(at)]


@given(st.text(max_size=40), st.integers(1, 30), st.lists(st.integers(8, 500)))
def test_a_message_that_came_down_in_pieces_is_read_where_it_lies(consumer: str, count: int, cuts: list[int]) -> None:
    request = FederatedEngine(TASK, [], LocalTransport({}), consumer=consumer)._request(3, 7, "update")
    params = torch.arange(count, dtype=torch.float32)
    data = encode_request(request, params)
    landing = Landing(len(data))
    done = [landing.add(piece) for piece in [data[:8], *split(data[8:], cuts)]]
    assert done == [False] * (len(done) - 1) + [True] and bytes(landing.body) == data
    asked = decode_request(landing.body)
    assert asked.request == request and asked.params is not None and torch.equal(asked.params, params)
    asked.params.add_(1)
    again = decode_request(landing.body).params
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


@given(st.binary(min_size=1, max_size=200), st.booleans(), st.lists(st.integers(0, 400)))
def test_what_is_packed_is_unpacked_from_any_parts(data: bytes, dull: bool, cuts: list[int]) -> None:
    data = bytes(len(data)) if dull else data
    packed = b"".join(pack(piece) for _, piece in pieces(data))
    assert len(packed) <= most_packed(len(data))
    unpacking = Unpacking(len(data))
    assert b"".join(piece for part in split(packed, cuts) for piece in unpacking.add(part)) == data
    assert unpacking.whole


def test_exponents_are_packed_and_mantissas_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PIECE", 2**20)
    vector = np.random.default_rng(1).standard_normal(2**16, dtype=np.float32).tobytes()
    assert 0.8 < len(pack(vector)) / len(vector) < 0.95
    assert len(pack(bytes(2**18))) < 2**11
    assert next(Unpacking(2**18).add(pack(vector))) == vector


@given(st.binary(max_size=200), st.integers(0, 100), st.lists(st.integers(0, 400)))
@settings(max_examples=300)
def test_nothing_unpacks_to_more_than_was_announced(data: bytes, size: int, cuts: list[int]) -> None:
    unpacking, made = Unpacking(size), 0
    try:
        for part in split(data, cuts):
            for piece in unpacking.add(part):
                made += len(piece)
                assert len(piece) <= SMALL
    except PackingError:
        pass
    assert made <= size and unpacking.unpacked <= size


@pytest.mark.parametrize("claimed", [SMALL, SMALL + 1, 0])
def test_a_bomb_is_not_set_off(claimed: int) -> None:
    bomb = zlib.compress(bytes(10**6))[: SMALL // 4 - 1] if claimed == SMALL else zlib.compress(bytes(10**6))
    with pytest.raises(PackingError):
        list(Unpacking(10**6).add(struct.pack(">5I", claimed, len(bomb), 0, 0, 0) + bomb))


Wire = list[tuple[int, int, int, bool, str, bytes]]


def honest(body: bytes, step: int = SMALL) -> Wire:
    count = -(-len(body) // step)
    return [(1, n, len(body), n == count - 1, "", body[n * step : (n + 1) * step]) for n in range(count)]


@st.composite
def wires(draw: st.DrawFn) -> tuple[bytes, Wire]:
    """An honest answer of several pieces, and what somebody makes of it: swapped, twice, left out, lied about."""
    body = draw(st.binary(min_size=SMALL + 1, max_size=6 * SMALL))
    wire = honest(body)
    for _ in range(draw(st.integers(0, 2))):
        at, other = (draw(st.integers(0, len(wire) - 1)) for _ in range(2))
        match draw(st.sampled_from(["swap", "twice", "drop", "size", "last", "more", "code", "stream", "number"])):
            case "swap":
                wire[at], wire[other] = wire[other], wire[at]
            case "twice":
                wire.insert(other, wire[at])
            case "drop":
                wire = wire[:at] + wire[at + 1 :] or wire
            case "size":
                wire[at] = (*wire[at][:2], draw(st.integers(-5, 10 * SMALL)), *wire[at][3:])
            case "last":
                wire[at] = (*wire[at][:3], not wire[at][3], *wire[at][4:])
            case "more":
                wire[at] = (*wire[at][:5], wire[at][5] + b"more")
            case "code":
                wire[at] = (*wire[at][:4], "provider-error", wire[at][5])
            case "stream":
                wire[at] = (2, *wire[at][1:])
            case "number":
                wire[at] = (wire[at][0], draw(st.integers(-1, 9)), *wire[at][2:])
    return body, wire


@given(wires(), st.lists(st.booleans(), max_size=12))
@settings(max_examples=400)
def test_pieces_make_the_answer_or_end_it_and_few_are_held(made: tuple[bytes, Wire], drains: list[bool]) -> None:
    body, wire = made
    one, passed, refused = Arriving(room=8 * SMALL, pass_on=True), b"", False
    turns = iter(drains)

    def drain() -> None:
        nonlocal passed
        while (piece := one.next()) is not None:
            passed += b"".join(one.opened(piece))
            one.done(piece)

    try:
        for stream, sequence, size, last, code, data in wire:
            if one.add(Chunk(stream, sequence, size, last, code, data)) is not None:
                return  # it said that it was small, and was: that is another answer, and no piece of this one
            assert sum(len(piece.data) for piece in one.waiting) <= arriving.MOST_WAITING
            if next(turns, True):
                drain()
        drain()
    except (OutOfOrderError, OverflowError):
        refused = True
    if wire == honest(body) and not refused:
        assert one.over and passed == body
    elif not refused and one.over:
        assert len(passed) == one.size, "whatever it is, it is as long as was said"
    assert len(passed) <= 8 * SMALL


class Line:
    """An exchange whose provider's answers, and whose clock, are in the test's hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.taken, self.numbers = 1000.0, 0, list[str]()
        self.asked, self.beats = threading.Event(), threading.Semaphore(0)
        self.delivered, self.passed, self.seen = b"", list[int](), list[Transfer]()
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(exchange, "time", clock)
        monkeypatch.setattr(exchange, "SLOWEST", SMALL)
        self.exchange = Exchange(
            self._send,
            lambda name: True,
            10**6,
            poll=0.001,
            taken=lambda number: self._beat(),
            passed=lambda name, piece: self.passed.append(piece.at + len(piece.data)),
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
            assert self.beats.acquire(timeout=20)

    def deliver(self, name: str, size: int, data: bytes) -> None:
        self.delivered += data

    def ask(self, size: int, timeout: float) -> tuple[threading.Thread, list[tuple[Any, Failures]]]:
        got: list[tuple[Any, Failures]] = []

        def watch(transfers: Any) -> None:
            self.seen += transfers.values()

        def run() -> None:
            got.append(self.exchange.ask(["a"], bytes(size), timeout, "", lambda _: None, self.deliver, watch))

        thread = threading.Thread(target=run)
        thread.start()
        assert self.asked.wait(20)
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
        line.exchange.take("a", line.numbers[0], Chunk(*wire))
        if not wire[3]:
            line.looked()
    thread.join(20)
    assert got == [({}, {})] and line.delivered == body
    assert line.passed == [16, 32, 48, 64, 80, 96, 100]
    assert Transfer(6 * SMALL, 100) in line.seen and line.seen[-1].to_receive == 100


def test_silence_ends_a_large_answer_and_what_came_of_it_is_dropped(line: Line) -> None:
    thread, got = line.ask(100, timeout=10.0)
    line.exchange.take("a", line.numbers[0], Chunk(*honest(bytes(100))[0]))
    line.looked()
    line.now += 10.5
    thread.join(20)
    assert got == [({}, {"a": Lost.NO_ANSWER})]


def test_who_sends_a_piece_now_and_then_does_not_hold_an_ask_open_for_ever(line: Line) -> None:
    body = bytes(100)
    thread, got = line.ask(100, timeout=10.0)
    for number, wire in enumerate(honest(body)):
        line.now += 9.0
        line.exchange.take("a", line.numbers[0], Chunk(*wire))
        if number == 1:
            break
        line.looked()
    thread.join(20)
    assert got == [({}, {"a": Lost.NO_ANSWER})], "two pieces may take two seconds at the slowest, beside the deadline"


@pytest.mark.parametrize("end", [b"", b"x"])
def test_a_packed_answer_that_is_another_length_than_announced_is_no_answer(line: Line, end: bytes) -> None:
    thread, got = line.ask(100, timeout=1e9)
    packed = b"".join(pack(piece) for _, piece in pieces(bytes(90))) + end
    line.exchange.take("a", line.numbers[0], Chunk(1, 0, 100, True, "", packed, True))
    thread.join(20)
    assert got == [({}, {"a": Lost.PROVIDER_ERROR})]


def test_a_packed_answer_is_delivered_plain(line: Line) -> None:
    body = bytes(range(100))
    thread, got = line.ask(100, timeout=1e9)
    packed = b"".join(pack(piece) for _, piece in pieces(body))
    for stream, number, _, last, code, data in honest(packed, 30):
        line.exchange.take("a", line.numbers[0], Chunk(stream, number, 100, last, code, data, True))
        while line.exchange.expects("a", line.numbers[0]) and sum(line.passed[-1:]) < 30 * number:
            time.sleep(0.001)
    thread.join(20)
    assert got == [({}, {})] and line.delivered == body


@given(st.binary(min_size=1, max_size=10 * SMALL), st.booleans(), st.integers(1, 50))
def test_flare_reads_an_answer_as_it_comes_and_few_pieces_wait(body: bytes, packed: bool, size: int) -> None:
    answer, most, read = Outgoing(len(body), packed), 0, b""

    def give() -> None:
        for _, piece in pieces(body):
            answer.add(piece)

    thread = threading.Thread(target=give)
    thread.start()
    while part := answer.read(size):
        most = max(most, len(answer._pieces))
        assert len(part) <= size
        read += part
    thread.join(20)
    assert most <= 2 and answer.complete
    assert (b"".join(Unpacking(len(body)).add(read)) if packed else read) == body


def test_an_answer_that_flare_has_given_up_is_read_to_its_end_and_forgotten() -> None:
    answer = Outgoing(100)
    answer.future = SimpleNamespace(done=lambda: True)
    for _, piece in pieces(bytes(100)):
        answer.add(piece)
    assert answer.complete and not answer._pieces


def test_a_provider_holds_no_more_of_what_is_announced_than_it_may() -> None:
    incoming, told = Incoming(most_bytes=100), list[str]()
    with overheard(told.append):
        assert incoming.add("lost", 60, b"a" * 30) is None
        assert incoming.add("first", 60, b"a" * 30) is None, "the two are more than 100: the older one is let go"
        assert incoming.add("huge", 101, b"b") is None
        assert incoming.add("first", 40, b"c" * 41) is None, "more than was announced"
        assert incoming.add("second", 40, b"d" * 39) is None
        whole = incoming.add("second", 40, b"d")
    assert whole is not None and bytes(whole) == b"d" * 40
    assert told == ["question received: 0.0 of 0.0 MB"]


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
