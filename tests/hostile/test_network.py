"""Somebody on the way between a provider and the server: slow, cut, silent, garbled, swapped and replayed traffic."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bad_wire import CHUNK, Wire
from databazaar import Arbiter, Consumer, Progress, Uniform
from databazaar.federation import enrolment, server
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.runs.folder import RunFolder
from loopback import WAIT, Federation, eventually
from markets import afar, examples, federated

pytestmark = [pytest.mark.slow, pytest.mark.process]
BANKS = ["bank1", "bank2"]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("network"))
    try:
        for name in BANKS:
            made.enroll(name)
        made.up()
        made.start("bank1")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def wire(federation: Federation) -> Iterator[Wire]:
    """bank2 reaches the server through this alone."""
    with Wire(enrolment.operator_folder(federation.market).port) as made:
        federation.edit("bank2/invitation.json", lambda it: it.update(port=made.own_port))
        federation.start("bank2")
        yield made


@pytest.fixture
def transport(federation: Federation, wire: Wire) -> Iterator[GrpcTransport]:
    with GrpcTransport(federation.market) as opened:
        assert opened.wait_for(BANKS, WAIT) == []
        yield opened
    wire.passes = None
    wire.silent.clear()


def came_back(transport: GrpcTransport) -> bool:
    """bank2 is asked until it answers: a connection that is only half there looks like one for a while."""
    return eventually(lambda: "bank2" in transport.request(["bank2"], b"again", 5)[0], WAIT)


def test_a_slow_wire_only_takes_longer(transport: GrpcTransport, wire: Wire) -> None:
    def slowly(chunk: bytes, _: bool) -> bytes:
        time.sleep(0.05)
        return chunk

    wire.passes = slowly
    payload = random.Random(1).randbytes(200_000)
    replies, failures = transport.request(BANKS, payload, 60)
    assert (sorted(replies), failures) == (BANKS, {})
    assert replies["bank2"] == b"bank2:" + payload


def test_a_connection_cut_in_the_middle_of_a_message_loses_that_message_alone(
    transport: GrpcTransport, wire: Wire
) -> None:
    wire.cut_after(100_000)
    replies, failures = transport.request(BANKS, bytes(1_000_000), 6)
    assert sorted(replies) == ["bank1"] and failures["bank2"] in ("connection-lost", "no-answer")
    assert came_back(transport)


def test_a_connection_that_only_looks_open_holds_nobody_up(transport: GrpcTransport, wire: Wire) -> None:
    wire.silent.set()
    replies, failures = transport.request(BANKS, b"anybody?", 3)
    assert sorted(replies) == ["bank1"] and failures["bank2"] in ("connection-lost", "no-answer")
    wire.silent.clear()
    assert came_back(transport)
    replies, _ = transport.request(BANKS, b"the next", 20)
    assert replies == {name: f"{name}:the next".encode() for name in BANKS}, "what was late belongs to nothing"


@pytest.mark.parametrize("garble", ["twice", "swapped", "flipped"])
def test_bytes_sent_twice_out_of_order_or_changed_never_become_an_answer(
    transport: GrpcTransport, wire: Wire, garble: str
) -> None:
    held: list[bytes] = []

    def change(chunk: bytes, to_server: bool) -> bytes:
        if not to_server:
            return chunk
        if garble == "twice":
            return chunk + chunk
        if garble == "flipped":
            return chunk[:-1] + bytes([chunk[-1] ^ 1])
        held.append(chunk)
        return b"" if len(held) % 2 else held[-1] + held[-2]

    wire.passes = change
    replies, failures = transport.request(BANKS, b"who is there?", 4)
    wire.passes = None
    assert replies == {"bank1": b"bank1:who is there?"} and list(failures) == ["bank2"]
    assert came_back(transport)


def test_recorded_traffic_says_nothing_on_a_new_connection(
    transport: GrpcTransport, wire: Wire, federation: Federation
) -> None:
    """All that bank2 ever sent to the server, its answers among it, sent once more by somebody without its key."""
    assert sorted(transport.request(BANKS, b"to be recorded", 20)[0]) == BANKS
    port, before = wire.port, (federation.root / "bank2" / "notes.txt").read_bytes()
    recordings = [sent for sent in wire.recorded if len(sent) > 500]
    assert recordings
    for sent in recordings:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as again, contextlib.suppress(OSError):
            again.sendall(sent)
            again.shutdown(socket.SHUT_WR)
            while again.recv(CHUNK):
                pass
    assert server.status(federation.market).connected == BANKS
    assert (federation.root / "bank2" / "notes.txt").read_bytes() == before
    assert transport.request(BANKS, b"as before", 20) == ({name: f"{name}:as before".encode() for name in BANKS}, {})


def test_a_market_over_a_bad_wire_pays_every_answer_once_and_no_other(
    transport: GrpcTransport, wire: Wire, federation: Federation, tmp_path: Path
) -> None:
    """The wire is cut or silent in some rounds; the run goes on with the other bank, and the ledger holds."""
    assert federated(BANKS, transport).would_take(BANKS, WAIT) == {}
    engine = federated(BANKS, transport, deadline=4.0)

    def trouble(progress: Progress) -> None:
        if progress.round == 2:
            wire.cut_after(200)
        elif progress.round == 4:
            wire.silent.set()
        elif progress.round == 6:
            wire.silent.clear()

    consumer = Consumer("logistic", holdout=examples("holdout1"), budget=24, per_round=2)
    arbiter = Arbiter(consumer, afar(BANKS), Uniform(replacement=False), engine=engine, seed=3)
    report = arbiter.run(tmp_path / "run", tell=trouble)
    assert RunFolder(tmp_path / "run").audit().ok
    id = json.loads((tmp_path / "run" / "run.json").read_text())["id"]
    asked = (federation.root / "bank2" / "asked.txt").read_text().splitlines()
    answered = {int(line.split()[1]) for line in asked if line.startswith(id) and line.endswith("update")}
    paid = [[r.number for r in report.rounds for a in r.accesses if a.provider == place and a.paid] for place in (0, 1)]
    assert len(paid[0]) == len(set(paid[0])) == len(report.rounds), "bank1 was never held up"
    assert len(paid[1]) == len(set(paid[1])) and set(paid[1]) <= answered
    assert 0 < len(paid[1]) < len(report.rounds), "some rounds of bank2 were lost, and are not paid"
    assert report.spent == len(paid[0]) + len(paid[1]) and report.spent + report.refunded == report.budget
    assert came_back(transport)
