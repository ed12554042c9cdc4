"""A provider with a certificate that means harm, against a real server with an honest provider beside it.

`mallory` speaks to the server by hand, so that nothing on its side keeps it from anything.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from databazaar.errors import BazaarError
from databazaar.federation import enrolment, renewal, server, wire
from databazaar.federation.frames import encode_frame
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.tls import open_channel
from databazaar.federation.wire import LOCAL, REPLACED, grpc
from loopback import MAX_BYTES, WAIT, Federation, eventually, server_log
from raw_provider import RawProvider, ServerMemory, joined

pytestmark = [pytest.mark.slow, pytest.mark.process]
MB = 1024 * 1024
NOBODYS = "0" * 32


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server, an honest provider `victim`, and kits: `mallory`'s, and three that will be revoked."""
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
def transport(federation: Federation) -> Iterator[GrpcTransport]:
    with GrpcTransport(federation.market) as opened:
        assert opened.wait_for(["victim"], WAIT) == []
        yield opened


@pytest.fixture
def mallory(federation: Federation, transport: GrpcTransport) -> Iterator[RawProvider]:
    with joined(federation.root / "mallory") as provider:
        assert transport.wait_for(["mallory"], WAIT) == []
        yield provider


@pytest.fixture(autouse=True)
def bounded(federation: Federation, transport: GrpcTransport) -> Iterator[None]:
    """Whatever a test does: the server holds little for it, and serves the others as before."""
    memory = ServerMemory(federation.market)
    yield
    assert memory.grown < 96 * MB
    assert transport.wait_for(["victim"], WAIT) == []
    assert transport.request(["victim"], b"still here?", 20) == ({"victim": b"victim:still here?"}, {})


class Asking(threading.Thread):
    """A question under way."""

    def __init__(self, transport: GrpcTransport, names: list[str], payload: bytes, seconds: float = 20.0) -> None:
        super().__init__(daemon=True)
        self._asked = transport, names, payload, seconds
        self.start()

    def run(self) -> None:
        transport, names, payload, seconds = self._asked
        self.replies, self.failures = transport.request(names, payload, seconds)

    def end(self) -> None:
        self.join(60)
        assert not self.is_alive()


# In another's name


def test_everybody_is_asked_under_a_number_of_its_own(transport: GrpcTransport, mallory: RawProvider) -> None:
    """And answers under that one alone: not under an old one, not under one that it made up, and not for another."""
    numbers = [NOBODYS]
    for turn in (b"first", b"second"):
        asking = Asking(transport, ["victim", "mallory"], turn)
        numbers.append(mallory.question()[0])
        for number in numbers[:-1]:
            mallory.answer(number, b"to another question")
        mallory.answer(numbers[-1], turn, name="victim", provider="victim")
        asking.end()
        assert asking.replies == {"victim": b"victim:" + turn, "mallory": turn}
    assert len(set(numbers)) == 3


def test_providers_reach_nothing_that_is_for_consumers(federation: Federation) -> None:
    with open_channel(enrolment.load_kit(federation.root / "mallory")) as channel:
        for service, method in ((LOCAL, "Command"), (LOCAL, "Ask"), ("grpc.reflection.v1", "x")):
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                channel.unary_unary(f"/{service}/{method}")(encode_frame({"op": "status"}), timeout=20)


# What no honest provider sends


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (encode_frame({"op": "ask", "number": NOBODYS}, b"a question of its own"), "it sends what is no answer"),
        (encode_frame({"op": "bye", "name": "victim"}), "it sends what is no answer"),
        (b"", "a frame lies about its length"),
        (b"\x00\x00\xff\xff{}", "a frame lies about its length"),
        (b"\x00\x00\x00\x02[]", "a frame has no JSON header"),
    ],
)
def test_what_is_no_answer_ends_the_stream_with_a_sentence(
    federation: Federation, mallory: RawProvider, message: bytes, why: str
) -> None:
    mallory.send_raw(message)
    assert mallory.closed() and why in mallory.ended
    assert f"the connection of mallory is closed: {why}" in server_log(federation)


def test_a_message_over_the_limit_ends_the_stream(mallory: RawProvider) -> None:
    mallory.send_raw(bytes(64 * MB))
    assert mallory.closed()


def test_answers_that_nobody_asked_for_are_read_ever_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thousand at once, as a provider may be late; after that two hundred in a second."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    connection = wire.ProviderStream("mallory", 1)
    for _ in range(1000):
        connection.pause()
    assert now[0] == 0.0
    for _ in range(1000):
        connection.pause()
    assert now[0] == pytest.approx(5.0)


def test_a_flood_of_answers_that_nobody_asked_for_takes_no_memory(mallory: RawProvider) -> None:
    for _ in range(900):
        assert mallory.answer(NOBODYS, bytes(MB // 8))


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([MAX_BYTES - 1], "reply-too-large"),
        ([10], "provider-error"),
        ([3 * MB, 2 * MB], "provider-error"),
        ([-1], "provider-error"),
        ([3 * MB] * 4, None),
        ([3 * MB, 3 * MB], "no-answer"),
    ],
)
def test_an_answer_is_no_longer_than_its_question_and_as_long_as_it_says(
    transport: GrpcTransport, mallory: RawProvider, sizes: list[int], why: str | None
) -> None:
    asking = Asking(transport, ["victim", "mallory"], bytes(3 * MB), 3.0)
    number, _ = mallory.question()
    for size in sizes:
        mallory.answer(number, bytes(MB), size=size)
    asking.end()
    assert asking.failures == ({} if why is None else {"mallory": why}) and "victim" in asking.replies


def test_half_answers_do_not_pile_up(transport: GrpcTransport, mallory: RawProvider) -> None:
    """What has come of an answer goes with its question; the pieces that come later belong to nothing."""
    for _ in range(6):
        asking = Asking(transport, ["mallory"], bytes(3 * MB), 0.3)
        number, _ = mallory.question()
        for _ in range(2):
            mallory.answer(number, bytes(MB), size=3 * MB)
        asking.end()
        assert asking.failures == {"mallory": "no-answer"}
        mallory.answer(number, bytes(MB), size=3 * MB)


def test_questions_to_one_that_does_not_read_them_do_not_pile_up(
    transport: GrpcTransport, mallory: RawProvider
) -> None:
    for _ in range(20):
        assert transport.request(["mallory"], bytes(3 * MB), 0.1)[1] == {"mallory": "no-answer"}


def test_one_that_answers_slowly_holds_nobody_but_itself(transport: GrpcTransport, mallory: RawProvider) -> None:
    asking = Asking(transport, ["victim", "mallory"], b"hello", 3.0)
    number, _ = mallory.question()
    while asking.is_alive():
        mallory.answer(number, b"x", size=1000)
        asking.join(0.05)
    assert (asking.replies, asking.failures) == ({"victim": b"victim:hello"}, {"mallory": "no-answer"})


# Who is not to be here


def test_one_certificate_has_one_stream_and_the_newest_counts(
    federation: Federation, transport: GrpcTransport, mallory: RawProvider
) -> None:
    with joined(federation.root / "mallory") as newer:
        assert mallory.closed() and mallory.ended == REPLACED
        asking = Asking(transport, ["mallory"], b"which?")
        newer.answer(newer.question()[0], b"the newer")
        asking.end()
        assert asking.replies == {"mallory": b"the newer"}


def test_the_revoked_are_not_let_in(federation: Federation) -> None:
    assert server.revoke(federation.market, "goner") is True
    with RawProvider(federation.root / "goner") as provider:
        assert provider.closed() and provider.ended == "the name is revoked"
    assert "a connection of goner is refused: the name is revoked" in server_log(federation)


def test_a_provider_revoked_in_the_middle_of_a_question_is_out_at_once(
    federation: Federation, transport: GrpcTransport
) -> None:
    with joined(federation.root / "leaver") as leaver:
        assert transport.wait_for(["leaver"], WAIT) == []
        asking = Asking(transport, ["victim", "leaver"], b"hello", 60.0)
        number, _ = leaver.question()
        assert server.revoke(federation.market, "leaver") is True
        assert leaver.closed()
        leaver.answer(number, b"too late")
        asking.end()  # with a lost connection, so nobody waited for the deadline
    assert (asking.replies, asking.failures) == ({"victim": b"victim:hello"}, {"leaver": "connection-lost"})
    with RawProvider(federation.root / "leaver") as again:
        assert again.closed()
    assert transport.request(["leaver"], b"hello", 5)[1] == {"leaver": "not-connected"}


def test_connections_without_a_certificate_end_soon_and_keep_nobody_out(
    federation: Federation, transport: GrpcTransport
) -> None:
    market = enrolment.operator_folder(federation.market)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((market.host, market.port), timeout=60)) for _ in range(200)
        ]
        with joined(federation.root / "mallory"):
            assert transport.wait_for(["mallory"], WAIT) == []
        for one in silent:
            with contextlib.suppress(ConnectionError):
                while one.recv(1000):
                    pass


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


def test_a_certificate_on_the_list_is_out_without_a_word_to_the_server(
    federation: Federation, transport: GrpcTransport
) -> None:
    """As when the list was signed elsewhere and put in place: the server looks at it every second."""
    federation.enroll("listed")
    with joined(federation.root / "listed") as listed:
        assert transport.wait_for(["listed"], WAIT) == []
        renewal.revoke_certificates(federation.market, "listed")
        assert listed.closed() and listed.ended == "the certificate is revoked"
    assert eventually(lambda: "listed" not in transport.connected())
