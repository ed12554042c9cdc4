"""A registered provider that means harm, against a real server with an honest provider beside it.

`mallory` has a certificate of the market and speaks FLARE's protocol by hand, so that nothing on its side keeps it from
anything.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest
from nvflare.apis.client import Client
from nvflare.apis.shareable import Shareable
from nvflare.private.fed.server.client_manager import ClientManager

from databazaar.errors import BazaarError
from databazaar.federation import onboarding, server
from databazaar.federation.guest import ANSWER, CODE, HERE, LARGEST, NUMBER, SMALL
from databazaar.federation.lobby import HANDSHAKES, PER_NAME
from databazaar.federation.site import forget_former_tokens
from databazaar.federation.transport import FlareTransport
from loopback import MAX_BYTES, WAIT, Federation, eventually, server_log
from raw_provider import CHUNK, DATA, FINAL, PING, RawProvider, ServerMemory, joined, sfm

pytestmark = [pytest.mark.slow, pytest.mark.process]
MB = 1024 * 1024


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server, an honest provider `victim`, and kits: one that never registers, and two that will be revoked."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        for name in ("victim", "mallory", "idler", "goner", "leaver"):
            made.enroll(name)
        made.up()
        made.start("victim")
        yield made
    finally:
        made.close()


@pytest.fixture
def transport(federation: Federation) -> Iterator[FlareTransport]:
    with FlareTransport(federation.market) as opened:
        assert opened.wait_for(["victim"], WAIT) == []
        yield opened


@pytest.fixture
def mallory(federation: Federation, transport: FlareTransport) -> Iterator[RawProvider]:
    with joined(federation.root / "mallory") as provider:
        assert transport.wait_for(["mallory"], WAIT) == []
        yield provider


@pytest.fixture(autouse=True)
def bounded(federation: Federation, transport: FlareTransport) -> Iterator[None]:
    """Whatever a test does: the server holds little for it, and serves the others as before."""
    memory = ServerMemory(federation.market)
    yield
    assert memory.grown < 96 * MB
    assert transport.wait_for(["victim"], WAIT) == []
    assert transport.request(["victim"], b"still here?", 20) == ({"victim": b"victim:still here?"}, {})


class Asking(threading.Thread):
    """A question under way."""

    def __init__(self, transport: FlareTransport, names: list[str], payload: bytes, seconds: float = 20.0) -> None:
        super().__init__(daemon=True)
        self._asked = transport, names, payload, seconds
        self.start()

    def run(self) -> None:
        transport, names, payload, seconds = self._asked
        self.replies, self.failures = transport.request(names, payload, seconds)

    def end(self) -> None:
        self.join(60)
        assert not self.is_alive()


def flood(provider: RawProvider, frames: Iterator[bytes]) -> int:
    """How many bytes of these the server lets through before it hangs up; a few MB wait in the kernel."""
    sent = 0
    with contextlib.suppress(OSError):
        for frame in frames:
            provider.send(frame)
            sent += len(frame)
    return sent


# In another's name


def test_a_provider_cannot_answer_in_another_s_name_with_a_token_of_its_past(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    """FLARE binds a token to a name only while it is registered: an old one is signed and bound to nothing."""
    old, new = mallory.token, mallory.register()
    mallory.ready()
    released = federation.root / "victim" / "released"
    asking = Asking(transport, ["victim", "mallory"], b"hang victim")
    number, _ = mallory.question()
    for mallory.token in (old, new):
        mallory.answer(number, b"a lie", cn__origin="victim")
        mallory.answer(number, b"a lie", cn__origin="victim", cn__from="victim")
        mallory.answer(number, b"a lie", cn__origin="victim", client_name="victim")
        mallory.answer(number, b"a lie", cn__from="victim", cn__route=[["victim", time.time()], ["mallory", 1.0]])
    mallory.answer(number, b"my own")
    mallory.ask("heart_beat", Shareable(), project_name="fraud")  # all of it has been looked at
    released.touch()
    asking.end()
    released.unlink()
    assert asking.replies == {"victim": b"victim:hang victim", "mallory": b"my own"}
    assert "refused a message of mallory in the name of 'victim'" in server_log(federation)


def test_everybody_is_asked_under_a_number_of_its_own(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    """And answers under that one alone: not under an old one, not under one that it made up."""
    numbers = ["0" * 32]
    for turn in (b"first", b"second"):
        asking = Asking(transport, ["victim", "mallory"], turn)
        numbers.append(mallory.question()[0])
        for number in numbers[:-1]:
            mallory.answer(number, b"to another question")
        mallory.answer(numbers[-1], turn)
        asking.end()
        assert asking.replies == {"victim": b"victim:" + turn, "mallory": turn}
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("name", ["victim", "mallory.child", "server", "mallory__1234-abcd", ""])
def test_a_connection_is_whose_certificate_it_has(federation: Federation, name: str) -> None:
    with RawProvider(federation.root / "mallory", name or "mallory") as provider:
        provider.name = name
        with contextlib.suppress(OSError):
            provider.hello()
        assert provider.closed()


def test_signs_of_life_and_goodbyes_in_another_s_name(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    """Neither takes the victim away, nor brings anybody in that is not there."""
    for more in ({}, {"cn__from": "victim"}, {"client_name": "victim"}):
        bye = mallory.headers("cellnet.channel", "bye", cn__origin="victim", **more)
        mallory.send(sfm(DATA, bye))
        mallory.stream(HERE, b"1", cn__origin="goner", **more)
        mallory.ask("heart_beat", Shareable(), project_name="fraud")
    assert transport.connected() == ["mallory", "victim"]


def test_nothing_goes_through_the_server_or_to_its_other_ears(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    """Not to another provider, not back to the server as if it were its own, not to its administration."""
    ears = [("admin", "command"), ("hci_channel", "x"), ("server_parent_listener", "get_clients")]
    ears += [("cellnet.channel", "bulk"), ("credential_manager", "key_exchange"), ("aux_communication", "x")]
    for channel, topic in ears:
        mallory.send(sfm(DATA, mallory.headers(channel, topic), b"x"))
    mallory.send(sfm(DATA, mallory.headers("sm__STREAM", "sm__DATA", cn__destination="victim"), b"x"))
    mallory.send(sfm(DATA, mallory.headers("task", "heart_beat", cn__origin="server", cn__from="server")))
    mallory.ask("heart_beat", Shareable(), project_name="fraud")
    log = server_log(federation)
    assert all(f"refused a message of mallory that is not for providers: ('{ear}'" in log for ear, _ in ears)
    assert "refused a message of mallory to 'victim'" in log
    assert "refused a message of mallory in the name of 'server'" in log


# Memory


@pytest.mark.parametrize("length", [LARGEST + 1, 2 * 1024 * MB - 1, 2**62])
def test_a_message_over_the_limit_ends_the_connection(mallory: RawProvider, length: int) -> None:
    mallory.announce(length)
    with contextlib.suppress(OSError):
        for _ in range(64):
            mallory.socket.sendall(bytes(MB))
    assert mallory.closed()


@pytest.mark.parametrize("lie", ["size", "gaps", "many", "upkeep"])
def test_streams_that_nobody_asked_for_take_no_memory(mallory: RawProvider, lie: str) -> None:
    frames = {
        "size": (mallory.chunk(HERE, bytes(MB), sm__sz=10, sm__id=1, sm__sq=i, sm__dt=CHUNK) for i in range(200)),
        "gaps": (mallory.chunk(HERE, bytes(MB), sm__sz=1, sm__id=i, sm__sq=1 + i, sm__dt=CHUNK) for i in range(200)),
        "many": (mallory.chunk(HERE, bytes(SMALL), sm__sz=1, sm__id=i, sm__sq=1, sm__dt=CHUNK) for i in range(4000)),
        "upkeep": (sfm(DATA, mallory.headers("task", "heart_beat"), bytes(MB)) for _ in range(200)),
    }[lie]
    assert flood(mallory, frames) < 32 * MB
    assert mallory.closed()


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("long", "reply-too-large"),
        ("longer than it says", "provider-error"),
        ("with a gap", "provider-error"),
        ("twice begun", "provider-error"),
        ("of a negative size", "provider-error"),
        ("cut short", "provider-error"),
        ("never ended", "no-answer"),
    ],
)
def test_an_answer_is_no_longer_than_its_question_and_in_one_piece(
    transport: FlareTransport, mallory: RawProvider, lie: str, why: str
) -> None:
    asking = Asking(transport, ["victim", "mallory"], bytes(3 * MB), 3.0)
    number, _ = mallory.question()

    def chunk(sequence: int, size: int, kind: int = CHUNK, stream: int = 7) -> None:
        more = {NUMBER: number, CODE: "", "sm__sz": size, "sm__id": stream, "sm__sq": sequence, "sm__dt": kind}
        mallory.stream(ANSWER, bytes(MB), **more)

    match lie:
        case "long":
            chunk(0, MAX_BYTES - 1)
        case "longer than it says":
            chunk(0, 10)
        case "with a gap":
            chunk(0, 3 * MB)
            chunk(2, 3 * MB)
        case "twice begun":
            chunk(0, 3 * MB)
            chunk(0, 3 * MB, stream=8)
        case "of a negative size":
            chunk(0, -1)
        case "cut short":
            chunk(0, 3 * MB, FINAL)
        case "never ended":
            chunk(0, 3 * MB)
            chunk(1, 3 * MB)
    asking.end()
    assert (list(asking.replies), asking.failures) == (["victim"], {"mallory": why})


def test_half_answers_do_not_pile_up(transport: FlareTransport, mallory: RawProvider) -> None:
    """What has come of an answer goes with its question; the pieces that come later belong to nothing."""
    for i in range(20):
        asking = Asking(transport, ["mallory"], bytes(3 * MB), 0.3)
        number, _ = mallory.question()
        for sequence in range(2):
            more = {"sm__sz": 3 * MB, "sm__id": i, "sm__sq": sequence, "sm__dt": CHUNK}
            mallory.answer(number, bytes(MB), **more)
        asking.end()
        assert asking.failures == {"mallory": "no-answer"}
        mallory.answer(number, bytes(MB), sm__sz=3 * MB, sm__id=i, sm__sq=2)


def test_questions_to_one_that_does_not_read_them_do_not_pile_up(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    for _ in range(20):
        transport.request(["mallory"], bytes(3 * MB), 0.1)
    assert "mallory does not read what it is sent: its connection is closed" in server_log(federation)
    assert transport.connected() == ["victim"]


def test_who_does_not_read_is_not_written_to_without_end(mallory: RawProvider) -> None:
    """Every ping would be answered by a pong that waits to be read: the server reads no more of them."""
    mallory.socket.settimeout(1.0)
    ping = sfm(PING)
    with pytest.raises(OSError):
        while True:
            mallory.socket.sendall((b"\x82" + bytes([0x80 | len(ping)]) + bytes(4) + ping) * 1000)


def test_a_flood_of_pings_is_not_answered_as_fast_as_it_comes(mallory: RawProvider) -> None:
    """The WebSocket's own pings cost six bytes each, and their pongs are read: they kept the server from all others."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while mallory.socket.recv(65536):
                pass

    mallory.socket.settimeout(2.0)
    threading.Thread(target=read, daemon=True).start()
    with pytest.raises(OSError):
        for _ in range(2500):
            mallory.socket.sendall(b"\x89\x80\0\0\0\0" * 2000)


def test_who_registers_again_and_again_leaves_no_tokens_behind(mallory: RawProvider) -> None:
    """FLARE's server and its administration each keep a token for good; here they are as FLARE leaves them."""
    manager = ClientManager("fraud")
    kept = {token: Client("mallory", token) for token in ("first", "second", "third")}
    manager.clients = {"third": kept["third"]}
    of_server, administration = dict.fromkeys(kept, "what is known"), SimpleNamespace(clients=dict(kept))
    administration.client_dead = administration.clients.pop
    flare = SimpleNamespace(tokens=of_server, remove_client_data=of_server.pop, client_manager=manager)
    flare.admin_server = administration
    forget_former_tokens(flare)
    assert list(of_server) == list(administration.clients) == ["third"]
    assert len({mallory.register() for _ in range(3)}) == 3
    mallory.ask("heart_beat", Shareable(), project_name="fraud")  # the last one still counts


# Who is not to be here


def test_who_does_not_register_may_say_next_to_nothing(federation: Federation) -> None:
    with RawProvider(federation.root / "idler") as provider:
        provider.hello()
        frames = (sfm(DATA, provider.headers("task", "heart_beat"), bytes(SMALL // 2)) for _ in range(4000))
        assert flood(provider, frames) < 32 * MB
        assert provider.closed()


def test_the_revoked_are_not_let_in(federation: Federation) -> None:
    assert server.revoke(federation.market, "goner") is True
    with RawProvider(federation.root / "goner") as provider, contextlib.suppress(OSError):
        provider.announce(2 * 1024 * MB - 1)
        sent = 0
        while sent < 64:
            provider.socket.sendall(bytes(MB))
            sent += 1
        pytest.fail("a revoked provider sent 64 MB")


def test_a_provider_revoked_in_the_middle_of_a_question_is_out_at_once(
    federation: Federation, transport: FlareTransport
) -> None:
    with joined(federation.root / "leaver") as leaver:
        assert transport.wait_for(["leaver"], WAIT) == []
        asking = Asking(transport, ["victim", "leaver"], b"hello", 60.0)
        number, _ = leaver.question()
        began = time.monotonic()
        assert server.revoke(federation.market, "leaver") is True
        assert leaver.closed()
        with contextlib.suppress(OSError):
            leaver.answer(number, b"too late")
        asking.end()
        assert time.monotonic() - began < 30.0, "nobody waited for the deadline"
    assert (asking.replies, asking.failures) == ({"victim": b"victim:hello"}, {"leaver": "connection-lost"})
    with RawProvider(federation.root / "leaver") as again:
        assert again.closed()
    assert transport.request(["leaver"], b"hello", 5)[1] == {"leaver": "not-connected"}


def test_one_certificate_has_few_connections(federation: Federation) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(RawProvider(federation.root / "mallory")) for _ in range(PER_NAME + 3)]
        assert [provider.closed(10.0) for provider in held[:3]] == [True, True, True]
        assert held[-1].upgrade().startswith(b"HTTP/1.1 101")


def test_connections_without_a_certificate_are_few_and_short(federation: Federation, transport: FlareTransport) -> None:
    market = onboarding.operator_folder(federation.market)
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            first = stack.enter_context(socket.create_connection((market.host, market.port), timeout=20))
            for _ in range(HANDSHAKES + 8):
                stack.enter_context(socket.create_connection((market.host, market.port), timeout=20))
            assert first.recv(1) == b"", "the oldest is let go for the newest"
        with joined(federation.root / "mallory"):
            assert transport.wait_for(["mallory"], WAIT) == [], "and whoever has a certificate gets in"


def test_a_revocation_that_the_server_does_not_confirm_is_called_that(federation: Federation) -> None:
    """The server stands still, as on a machine out of memory: it is up, whatever any clock says, and cannot be told."""
    frozen = psutil.Process(int((federation.market / "server.lock").read_text()))
    frozen.suspend()
    try:
        with pytest.raises(BazaarError, match=r"is recorded as revoked, but the server .* has not confirmed it"):
            server.revoke(federation.market, "idler", wait=0.5)
        found = server.status(federation.market, wait=0.5)
        assert (found.up, found.answers, found.pid) == (True, False, frozen.pid)
        assert "idler" in found.revoked and "idler" not in found.members
    finally:
        frozen.resume()
    assert server.revoke(federation.market, "idler") is True
    with RawProvider(federation.root / "idler") as provider:
        assert provider.closed()


# A slow one


def test_one_that_answers_a_byte_at_a_time_holds_nobody_but_itself(
    transport: FlareTransport, mallory: RawProvider
) -> None:
    asking = Asking(transport, ["victim", "mallory"], b"hello", 3.0)
    number, _ = mallory.question()
    frame = mallory.chunk(ANSWER, bytes(1000), **{NUMBER: number, CODE: ""})
    mallory.announce(len(frame))
    began = time.monotonic()
    for at in range(len(frame)):
        mallory.socket.sendall(frame[at : at + 1])
        if not asking.is_alive():
            break
        time.sleep(0.05)
    asking.end()
    assert (asking.replies, asking.failures) == (
        {"victim": b"victim:hello"},
        {"mallory": "no-answer"},
    )
    assert time.monotonic() - began < 15.0
    assert eventually(lambda: transport.request(["victim"], b"next", 5)[0] == {"victim": b"victim:next"})
