"""The parts that need no process: frames, exchange, enrolment, the local transport."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from databazaar.errors import BazaarError
from databazaar.federation import enrolment, pki, server
from databazaar.federation.enrolment_files import PRIVATE
from databazaar.federation.exchange import Exchange
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.transport import LocalTransport, Lost, Transport
from databazaar.files import write_whole
from databazaar.testing import check_transport
from whole_answers import hand_in


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enrolment.init_market(tmp_path_factory.mktemp("m") / "market", "fraud", "localhost", 8002).folder


class Wire:
    """Remembers what an exchange sent, and answers when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.asked = threading.Event()
        self.here = {"a", "b"}
        self.both = threading.Event()
        self.ended: list[str] = []
        self.exchange = Exchange(self.send, self.here.__contains__, max_bytes=10, poll=0.01, ended=self.ended.append)

    def send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        self.sent.append((name, number))
        if payload == b"quiet":
            self.asked.set()
        if payload == b"silent" and len(self.sent) == 2:
            self.both.set()
        if payload == b"vanish":
            self.here.discard(name)
        if payload == b"broken":
            raise RuntimeError
        if payload == b"echo":
            hand_in(self.exchange, name, number, "", name.encode())


def test_an_answer_counts_once_for_an_open_question_and_from_one_that_was_asked() -> None:
    wire = Wire()
    assert wire.exchange.ask(["a", "b", "a", "c"], b"echo", 1.0) == (
        {"a": b"a", "b": b"b"},
        {"c": "not-connected"},
    )
    assert [name for name, _ in wire.sent] == ["a", "b"]
    assert not hand_in(wire.exchange, "a", wire.sent[0][1], "", b"late")
    got: dict[str, object] = {}
    thread = threading.Thread(target=lambda: got.update(result=wire.exchange.ask(["a"], b"quiet", 20.0)))
    thread.start()
    assert wire.asked.wait(90.0)
    number = wire.sent[-1][1]
    assert not hand_in(wire.exchange, "b", number, "", b"not asked")
    assert not hand_in(wire.exchange, "a", "another number", "", b"")
    assert hand_in(wire.exchange, "a", number, "a text of its own", b"")
    assert not hand_in(wire.exchange, "a", number, "", b"twice")
    thread.join()
    assert got["result"] == ({}, {"a": "provider-error"})


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    wire, long = Wire(), "a-name-of-many-letters"
    wire.here.add(long)
    assert wire.exchange.ask(["a", long], b"echo", 1.0) == ({"a": b"a"}, {long: "reply-too-large"})


def test_an_exchange_ends_by_its_deadline_or_when_the_connection_is_gone() -> None:
    wire = Wire()
    assert wire.exchange.ask(["a"], b"quiet", 0.1) == ({}, {"a": "no-answer"})
    assert wire.exchange.ask(["a"], b"vanish", 60.0) == ({}, {"a": "connection-lost"})
    wire.here.add("a")
    assert wire.exchange.ask(["a"], b"broken", 60.0) == ({}, {"a": "connection-lost"})


def test_everybody_has_a_number_of_its_own_and_answers_under_it_alone() -> None:
    wire = Wire()
    thread = threading.Thread(target=wire.exchange.ask, args=(["a", "b"], b"silent", 20.0))
    thread.start()
    assert wire.both.wait(90.0)
    numbers = dict(wire.sent)
    assert numbers["a"] != numbers["b"]
    assert not hand_in(wire.exchange, "a", numbers["b"], "", b"in b's place")
    assert hand_in(wire.exchange, "a", numbers["a"], "", b"a") and hand_in(wire.exchange, "b", numbers["b"], "", b"b")
    thread.join()


@pytest.mark.parametrize(
    ("pieces", "result"),
    [
        ([(6, "", b"abc"), (6, "", b"def")], b"abcdef"),
        ([(0, "", b"")], b""),
        ([(11, "", b"abc")], "reply-too-large"),
        ([(6, "", b"abc"), (7, "", b"def")], "provider-error"),
        ([(6, "", b"abc"), (6, "", b"defg")], "provider-error"),
        ([(2, "", b"abc")], "provider-error"),
        ([(-1, "", b"")], "provider-error"),
        ([("6", "", b"abc")], "provider-error"),
        ([(6, "", b"abc"), (6, "", b"")], "provider-error"),
        ([(6, "no-answer", b"abc")], "provider-error"),
        ([(6, "", b"abc"), (6, "words of its own", b"def")], "provider-error"),
        ([(0, "words of its own", b"")], "provider-error"),
    ],
)
def test_an_answer_in_pieces_is_whole_or_a_failure(
    pieces: list[tuple[object, str, bytes]], result: bytes | str
) -> None:
    wire, got = Wire(), list[tuple[dict[str, bytes], dict[str, Lost]]]()
    thread = threading.Thread(target=lambda: got.append(wire.exchange.ask(["a"], b"quiet", 20.0)))
    thread.start()
    assert wire.asked.wait(90.0)
    number = wire.sent[-1][1]
    assert not wire.exchange.take("b", number, 1, "", b"x"), "nobody asked b"
    for size, code, data in pieces:
        wire.exchange.take("a", number, size, code, data)
    thread.join()
    assert got == [({"a": result}, {}) if isinstance(result, bytes) else ({}, {"a": result})]
    assert wire.ended == [number]


def test_a_process_id_given_to_another_is_not_the_server(tmp_path: Path) -> None:
    """As after a crash or a restart of the machine: nobody holds the lock, so no server is up, and nobody is killed."""
    made = enrolment.init_market(tmp_path / "market", "fraud", "localhost", 8002).folder
    enrolment.sign(made, enrolment.request(enrolment.invite(made, "bank1"), tmp_path / "kit"))
    (made / "server.lock").write_text(str(os.getpid()))
    found = server.status(made)
    assert (found.up, found.answers, found.pid) == (False, False, None)
    assert server.down(made) is False
    assert server.revoke(made, "bank1") is False, "it is on record, and holds from the next start on"
    assert server.status(made).revoked == ["bank1"]
    with (made / "server.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        with pytest.raises(BazaarError, match="is just starting"):
            server.status(made)
        starting.write(str(os.getpid()))
        starting.flush()
        with pytest.raises(BazaarError, match=f"already up as process {os.getpid()}"):
            server.up(made)


def test_the_local_transport_is_a_transport() -> None:
    def fails(payload: bytes) -> bytes:
        raise ZeroDivisionError

    transport: Transport = LocalTransport({"a": lambda payload: payload * 2, "b": fails})
    assert transport.connected() == ["a", "b"]
    assert transport.wait_for(["c", "a"], 60.0) == ["c"]
    assert transport.request(["a", "b", "c"], b"x", 1) == (
        {"a": b"xx"},
        {"b": "provider-error", "c": "not-connected"},
    )


def test_the_contract_of_a_transport_holds_in_memory() -> None:
    def fails(payload: bytes) -> bytes:
        raise ZeroDivisionError

    check_transport(LocalTransport({"a": bytes, "b": bytes, "c": fails}), ["a", "b"], failing="c")
    with pytest.raises(AssertionError, match="bytes arrive as they were sent"):
        check_transport(LocalTransport({"a": lambda payload: payload * 2}), ["a"])


def test_onboarding_keeps_the_key_at_home_and_serves_an_invitation_once(market: Path, tmp_path: Path) -> None:
    invitation = enrolment.invite(market, "bank1")
    asked = enrolment.request(invitation, tmp_path / "kit")
    key = (tmp_path / "kit/startup/client.key").read_text()
    assert (tmp_path / "kit/startup/client.key").stat().st_mode & 0o777 == 0o600
    certificate = enrolment.sign(market, asked)
    assert enrolment.complete(tmp_path / "kit", certificate).provider == "bank1"
    body = key.splitlines()[5]
    assert not [p for p in [*market.rglob("*"), asked, certificate] if p.is_file() and body in p.read_text()]
    assert enrolment.members(market) == ["bank1"]
    with pytest.raises(BazaarError, match="no open invitation"):
        enrolment.sign(market, asked)
    with pytest.raises(BazaarError, match="already has a certificate"):
        enrolment.invite(market, "bank1")


def test_a_request_not_made_from_the_invitation_is_not_signed(market: Path, tmp_path: Path) -> None:
    stolen = json.loads(enrolment.invite(market, "bank2").read_text())
    stolen["secret"] = "00" * 32
    (tmp_path / "guess.json").write_text(json.dumps(stolen))
    asked = enrolment.request(tmp_path / "guess.json", tmp_path / "kit")
    with pytest.raises(BazaarError, match="not made from bank2's invitation"):
        enrolment.sign(market, asked)


def test_a_kit_takes_only_its_own_certificate(market: Path, tmp_path: Path) -> None:
    certificates = {}
    for name in ("bank3", "bank4"):
        asked = enrolment.request(enrolment.invite(market, name), tmp_path / name)
        certificates[name] = enrolment.sign(market, asked)
    with pytest.raises(BazaarError, match="not for bank3's key"):
        enrolment.complete(tmp_path / "bank3", certificates["bank4"])
    with pytest.raises(BazaarError, match="not a complete kit"):
        enrolment.load_kit(tmp_path / "bank3")
    other = enrolment.init_market(tmp_path / "other", "fraud", "localhost", 8002).folder
    asked = enrolment.request(enrolment.invite(other, "bank3"), tmp_path / "foreign")
    with pytest.raises(BazaarError, match="not issued by the market"):
        enrolment.complete(tmp_path / "bank3", enrolment.sign(other, asked))


def test_a_certificate_is_of_the_authority_that_signed_it_and_of_no_namesake() -> None:
    key, (authority_key, authority) = pki.new_key(), pki.new_authority("fraud.ca")
    certificate = pki.pem(pki.Authority(authority_key, authority).issue("bank1", key.public_key()))
    pki.check_certificate(certificate, pki.pem(authority), "bank1", key)
    for name in ("fraud.ca", "other.ca"):
        with pytest.raises(BazaarError, match="not issued by the market"):
            pki.check_certificate(certificate, pki.pem(pki.new_authority(name)[1]), "bank1", key)


def test_a_private_file_is_private_whatever_lay_in_its_place(tmp_path: Path) -> None:
    for name in ("key", ".key.0123456789abcdef.partial"):
        (tmp_path / name).write_text("readable by everybody")
        (tmp_path / name).chmod(0o644)
    write_whole(tmp_path / "key", b"secret", PRIVATE)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["", "Bank", "a b", "../x", "server", "a" * 49, "bank.1", "-a"])
def test_bad_names_are_refused(market: Path, name: str) -> None:
    with pytest.raises(BazaarError, match="cannot be the name"):
        enrolment.invite(market, name)


def test_errors_are_one_sentence_with_a_remedy(market: Path, tmp_path: Path) -> None:
    with pytest.raises(BazaarError, match="already holds a market"):
        enrolment.init_market(market, "fraud", "localhost", 8002)
    with pytest.raises(BazaarError, match="not a host name"):
        enrolment.init_market(tmp_path / "x", "fraud", "no host", 8002)
    with pytest.raises(BazaarError, match="not a port"):
        enrolment.init_market(tmp_path / "x", "fraud", "localhost", 0)
    with pytest.raises(BazaarError, match="holds no market"):
        server.status(tmp_path)
    with pytest.raises(BazaarError, match="is not up"), GrpcTransport(market):
        pass
    with pytest.raises(BazaarError, match="has no provider ghost"):
        server.revoke(market, "ghost")
    assert server.down(market) is False
    assert server.status(market).up is False
