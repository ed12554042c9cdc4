"""Large messages over a real federation: real processes, real sockets, and what each of them holds meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from databazaar.federation import server
from databazaar.federation.guest import ANSWER, CODE, NUMBER, PACKED
from databazaar.federation.payloads import PIECE, Transfer, pieces
from databazaar.federation.processes import WINDOW
from databazaar.federation.transport import FlareTransport
from loopback import SEARCH_PATH, WAIT, Federation, eventually
from processes import Forked
from raw_provider import CHUNK, FINAL, RawProvider, ServerMemory, joined

pytestmark = [pytest.mark.slow, pytest.mark.process]
SIZE = 48 * PIECE
BETWEEN = 5 * WINDOW
"""Bytes that whoever passes a large message on may hold, whatever its size: a window on its way in and one on its way
out, each twice, as FLARE's frames and in the connection's buffers, and as much as one for what the allocator keeps. It
is less than the message, and whoever held that would hold it beside all this."""


class Peak:
    """The most that a process has held since this was made, beyond what it held then."""

    def __init__(self, process: psutil.Process) -> None:
        self._folder = Path("/proc") / str(process.pid)
        (self._folder / "clear_refs").write_text("5")
        self._first = self._read("VmRSS")

    @property
    def grown(self) -> int:
        return self._read("VmHWM") - self._first

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("large"))
    try:
        for name in ("bank1", "bank2"):
            made.enroll(name)
        server.up(made.market)
        kit = made.root / "bank1"
        command = [sys.executable, "-m", "databazaar.federation.provider", str(kit), "--handler", "parties:handler"]
        environment = {**os.environ, "PYTHONPATH": SEARCH_PATH, "PARTY": "bank1", "NOTES": str(kit / "notes.txt")}
        with (kit / "provider.txt").open("ab") as output:
            made.processes["bank1"] = Forked(command, env=environment, stdout=output, stderr=output)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("pack", [False, True])
def test_both_sides_see_it_move_and_nobody_between_them_holds_it(large: Federation, pack: bool) -> None:
    released = large.root / "bank1" / "released"
    said = large.root / "bank1" / "provider.txt"
    payload = b"hang bank1 " + os.urandom(PIECE) + bytes(SIZE - PIECE)
    seen: list[Transfer] = []

    def watch(transfers: Mapping[str, Transfer]) -> None:
        seen.append(transfers["bank1"])
        assert server.status(large.market).transfers["bank1"].to_send == len(payload)
        if seen[-1].sent == len(payload):
            released.touch()

    try:
        with FlareTransport(large.market, watch=watch, pack=pack) as transport:
            assert transport.wait_for(["bank1"], WAIT) == []
            assert transport.request(["bank1"], b"warm", 20)[1] == {}
            flare, memory = Peak(large.children("bank1")[0]), ServerMemory(large.market)
            replies, failures = transport.request(["bank1"], payload, 60.0)
        assert failures == {} and memoryview(replies["bank1"])[6:] == payload
        assert {(one.to_send, one.to_receive) for one in seen} <= {(len(payload), 0), (len(payload), len(payload) + 6)}
        assert flare.grown < BETWEEN < len(payload), "the provider's FLARE process passes on what it gets"
        assert memory.grown < len(payload) + BETWEEN, "the server holds the question once, and passes the answer on"
        size = f"{len(payload) / 1e6:.1f}"
        assert f"question received: {size} of {size} MB" in said.read_text()
        size = f"{(len(payload) + 6) / 1e6:.1f}"
        assert eventually(lambda: f"answer sent: {size} of {size} MB" in said.read_text())
    finally:
        released.unlink(missing_ok=True)


def hostile(provider: RawProvider, number: str, size: int, case: str) -> None:
    """Answers badly: each case is one way to do so."""
    body, stream = bytes(PIECE), 7
    wire = {"sm__sz": size, "sm__id": stream, NUMBER: number, CODE: ""}
    if case == "a bomb":
        bomb = (b"\x00\x10\x00\x01" + b"\x00\x04\x00\x01" * 4) + body
        provider.send(provider.chunk(ANSWER, bomb[:PIECE], **wire, sm__dt=CHUNK, sm__sq=0, **{PACKED: True}))
        return
    order = {"out of order": [0, 2, 1], "twice": [0, 1, 1], "without end": range(64)}[case]
    for sequence in order:
        last = {"sm__dt": FINAL if case != "without end" and sequence == order[-1] else CHUNK}
        provider.send(provider.chunk(ANSWER, body, **wire, **last, sm__sq=sequence))


@pytest.mark.parametrize("case", ["out of order", "twice", "without end", "a bomb"])
def test_who_answers_badly_costs_little_and_is_refused(large: Federation, case: str) -> None:
    payload, size = bytes(SIZE), 40 * PIECE if case == "without end" else SIZE
    with joined(large.root / "bank2") as provider, FlareTransport(large.market) as transport:
        assert transport.wait_for(["bank2"], WAIT) == []
        got: list[object] = []
        asking = threading.Thread(target=lambda: got.append(transport.request(["bank2"], payload, 60.0)))
        memory = ServerMemory(large.market)
        asking.start()
        headers = provider.receive()[0]
        while NUMBER not in headers:
            headers = provider.receive()[0]
        hostile(provider, headers[NUMBER], size, case)
        asking.join(60)
        assert got == [({}, {"bank2": "provider-error"})]
        assert memory.grown < len(payload) + BETWEEN


def test_who_is_gone_in_the_middle_of_an_answer_is_asked_again_as_ever(large: Federation) -> None:
    payload = bytes(SIZE)
    with FlareTransport(large.market) as transport:
        with joined(large.root / "bank2") as provider:
            assert transport.wait_for(["bank2"], WAIT) == []
            got: list[object] = []
            asking = threading.Thread(target=lambda: got.append(transport.request(["bank2"], payload, 60.0)))
            asking.start()
            headers = provider.receive()[0]
            while NUMBER not in headers:
                headers = provider.receive()[0]
            wire = {"sm__sz": SIZE, "sm__id": 9, NUMBER: headers[NUMBER], CODE: "", "sm__dt": CHUNK}
            for sequence, (_, piece) in zip(range(5), pieces(payload), strict=False):
                provider.send(provider.chunk(ANSWER, bytes(piece), **wire, sm__sq=sequence))
        asking.join(60)
        assert got == [({}, {"bank2": "connection-lost"})]
        assert transport.request(["bank1"], b"still here", 20)[0] == {"bank1": b"bank1:still here"}
