"""Large messages over a real federation: real processes, real sockets, and what each of them holds meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from databazaar.federation import server
from databazaar.federation.frames import PIECE, Body
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.provider import ProviderNode
from databazaar.testing import check_transport
from loopback import SEARCH_PATH, WAIT, Federation, eventually
from processes import Forked
from raw_provider import RawProvider, ServerMemory, joined

pytestmark = [pytest.mark.slow, pytest.mark.process]
SIZE = 160 * PIECE
BETWEEN = 128 * PIECE
"""Bytes that whoever passes a large message on may hold beside it, whatever its size: windows and buffers of gRPC on
the way in and on the way out, and what the allocator keeps."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("large"))
    try:
        for name in ("bank1", "bank2"):
            made.enroll(name)
        server.up(made.market)
        kit = made.root / "bank1"
        command = [sys.executable, "-m", "provider_process", str(kit), "parties:handler"]
        environment = {**os.environ, "PYTHONPATH": SEARCH_PATH, "PARTY": "bank1", "NOTES": str(kit / "notes.txt")}
        with (kit / "provider.txt").open("ab") as output:
            made.processes["bank1"] = Forked(command, env=environment, stdout=output, stderr=output)
        yield made
    finally:
        made.close()


def test_both_sides_see_it_move_and_the_server_passes_the_answer_on(large: Federation) -> None:
    released = large.root / "bank1" / "released"
    said = large.root / "bank1" / "provider.txt"
    payload = b"hang bank1 " + os.urandom(PIECE) + bytes(SIZE - PIECE)
    size, larger = f"{len(payload) / 1e6:.1f}", f"{(len(payload) + 6) / 1e6:.1f}"
    arrived = f"a question of {size} MB has come"

    def release() -> None:
        if eventually(lambda: arrived in said.read_text()):
            released.touch()

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        with GrpcTransport(large.market) as transport:
            assert transport.wait_for(["bank1"], WAIT) == []
            assert transport.request(["bank1"], b"warm", 20)[1] == {}
            memory = ServerMemory(large.market)
            replies, failures = transport.request(["bank1"], payload, 60.0)
        assert failures == {} and memoryview(replies["bank1"])[6:] == payload
        assert memory.grown < len(payload) + BETWEEN < 2 * len(payload), "it holds the question once, and no answer"
        assert eventually(lambda: f"an answer of {larger} MB is sent" in said.read_text())
    finally:
        releasing.join()
        released.unlink(missing_ok=True)


def test_the_contract_of_a_transport_holds_over_grpc(large: Federation) -> None:
    def fails(payload: Body) -> Body:
        raise ZeroDivisionError

    with (
        ProviderNode(large.enroll("echo"), lambda payload: payload),
        ProviderNode(large.enroll("failing"), fails),
        GrpcTransport(large.market) as transport,
    ):
        assert transport.wait_for(["failing"], WAIT) == []
        check_transport(transport, ["echo"], failing="failing", timeout=WAIT)


def hostile(provider: RawProvider, number: str, case: str) -> None:
    """Answers badly: each case is one way to do so."""
    provider.answer(number, bytes(PIECE), size=SIZE)
    provider.answer(number, b"" if case == "nothing" else bytes(PIECE), size=SIZE - (case == "another size"))


@pytest.mark.parametrize("case", ["another size", "nothing"])
def test_who_answers_badly_costs_little_and_is_refused(large: Federation, case: str) -> None:
    payload = bytes(SIZE)
    with joined(large.root / "bank2") as provider, GrpcTransport(large.market) as transport:
        assert transport.wait_for(["bank2"], WAIT) == []
        got: list[object] = []
        asking = threading.Thread(target=lambda: got.append(transport.request(["bank2"], payload, 60.0)))
        memory = ServerMemory(large.market)
        asking.start()
        hostile(provider, provider.question()[0], case)
        asking.join(60)
        assert got == [({}, {"bank2": "provider-error"})]
        assert memory.grown < len(payload) + BETWEEN


def test_who_is_gone_in_the_middle_of_an_answer_is_asked_again_as_ever(large: Federation) -> None:
    payload = bytes(SIZE)
    with GrpcTransport(large.market) as transport:
        with joined(large.root / "bank2") as provider:
            assert transport.wait_for(["bank2"], WAIT) == []
            got: list[object] = []
            asking = threading.Thread(target=lambda: got.append(transport.request(["bank2"], payload, 60.0)))
            asking.start()
            number = provider.question()[0]
            for _ in range(5):
                provider.answer(number, bytes(PIECE), size=SIZE)
        asking.join(60)
        assert got == [({}, {"bank2": "connection-lost"})]
        assert transport.request(["bank1"], b"still here", 20)[0] == {"bank1": b"bank1:still here"}
