"""Real processes, real certificates, real kills."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, server
from databazaar.federation.check import check
from databazaar.federation.fair_queue import Queue
from databazaar.federation.grpc_transport import GrpcTransport, LocalServer
from databazaar.federation.wire import LOCAL, SERVICE, SOCKET, client_options, grpc
from loopback import MAX_BYTES, WAIT, Federation, eventually, server_log

pytestmark = [pytest.mark.slow, pytest.mark.process]
BANKS = ["bank1", "bank2", "bank3"]


def test_every_provider_answers_for_itself(transport: GrpcTransport) -> None:
    payload = os.urandom(1_000_000)
    replies, failures = transport.request([*BANKS, "bank1", "nobody"], payload, 20)
    assert replies == {name: name.encode() + b":" + payload for name in BANKS}
    assert failures == {"nobody": "not-connected"}


def test_an_empty_payload_and_a_subset(transport: GrpcTransport) -> None:
    assert transport.request(["bank2"], b"", 20) == ({"bank2": b"bank2:"}, {})


def test_a_hung_provider_does_not_hold_the_others_up_and_its_late_reply_is_dropped(
    transport: GrpcTransport, federation: Federation
) -> None:
    released = federation.root / "bank2" / "released"
    try:
        replies, failures = transport.request(BANKS, b"hang bank2", 3.0)
        assert sorted(replies) == ["bank1", "bank3"]
        assert failures == {"bank2": "no-answer"}, "it hangs on, and the round is over"
        released.touch()
        replies, failures = transport.request(BANKS, b"the next round", 20)
        assert replies == {name: name.encode() + b":the next round" for name in BANKS}
    finally:
        released.unlink(missing_ok=True)


def asking(federation: Federation, consumer: str, name: str, payload: bytes, seconds: float) -> Future[object]:
    """The same beside the test, and from another consumer."""

    def ask() -> object:
        with GrpcTransport(federation.market, consumer) as transport:
            return transport.request([name], payload, seconds)

    future: Future[object] = Future()
    threading.Thread(target=lambda: future.set_result(ask())).start()
    return future


def test_consumers_take_turns_who_waits_is_not_late_and_who_is_gone_does_not_wait(federation: Federation) -> None:
    released, market = federation.root / "bank2" / "released", federation.market
    try:
        first = asking(federation, "north", "bank2", b"hang bank2", 60.0)
        assert eventually(lambda: server.status(market).queues == {"bank2": Queue(1, {}, {"north": 1}, {})})
        began, second = time.monotonic(), asking(federation, "south", "bank2", b"hello", 4.0)
        killed = LocalServer(enrolment.operator_folder(market))
        header = {"names": ["bank2"], "timeout": 60.0, "consumer": "killed"}
        call = killed.ask(header, b"of no use")
        both = {"south": 1, "killed": 1}
        assert eventually(lambda: server.status(market).queues == {"bank2": Queue(1, both, {"north": 1}, {})})
        call.cancel()
        killed.close()
        assert eventually(lambda: server.status(market).queues == {"bank2": Queue(1, {"south": 1}, {"north": 1}, {})})
        shown = CliRunner().invoke(app, ["federation", "status", "--folder", str(market)]).output
        assert "member   bank2: connected\n  asked   north: 1\n  waiting south: 1\n" in shown
        assert eventually(lambda: time.monotonic() > began + 4.5), "longer than the deadline of the one that waits"
        released.touch()
        assert first.result(WAIT) == ({"bank2": b"bank2:hang bank2"}, {})
        assert second.result(WAIT) == ({"bank2": b"bank2:hello"}, {})
        assert eventually(lambda: server.status(market).queues == {})
        assert b"of no use" not in (federation.root / "bank2" / "notes.txt").read_bytes()
    finally:
        released.unlink(missing_ok=True)


def test_a_server_that_is_up_takes_another_capacity(federation: Federation) -> None:
    released, market = federation.root / "bank3" / "released", federation.market
    try:
        asked = [asking(federation, consumer, "bank3", b"hang bank3", 60.0) for consumer in ("north", "south")]
        assert eventually(
            lambda: [sum(queue.waiting.values()) for queue in server.status(market).queues.values()] == [1]
        )
        server.set_capacity(market, "bank3", 2)
        assert eventually(lambda: server.status(market).queues == {"bank3": Queue(2, {}, {"north": 1, "south": 1}, {})})
        released.touch()
        assert {str(one.result(WAIT)) for one in asked} == {str(({"bank3": b"bank3:hang bank3"}, {}))}
        server.set_capacity(market, "bank3", 1)
    finally:
        released.unlink(missing_ok=True)


def test_the_text_of_a_provider_s_exception_stays_with_it(transport: GrpcTransport, federation: Federation) -> None:
    replies, failures = transport.request(BANKS, b"fail bank3", 20)
    assert sorted(replies) == ["bank1", "bank2"]
    assert failures == {"bank3": "provider-error"}
    assert "a secret" in (federation.root / "bank3" / "provider.txt").read_text()
    assert "a secret" not in server_log(federation)


def test_sizes_are_bounded_on_both_sides(transport: GrpcTransport) -> None:
    _, failures = transport.request(["bank1"], f"big bank1 {MAX_BYTES + 1}".encode(), 20)
    assert failures == {"bank1": "reply-too-large"}
    with pytest.raises(BazaarError, match="over the limit"):
        transport.request(["bank1"], bytes(MAX_BYTES + 1), 20)
    assert transport.request(["bank1"], b"still here", 20)[0] == {"bank1": b"bank1:still here"}


def test_a_provider_killed_in_mid_request_and_started_again(transport: GrpcTransport, federation: Federation) -> None:
    notes = federation.root / "bank2" / "notes.txt"

    def kill_once_it_is_asked() -> None:
        eventually(lambda: notes.exists() and b"until it is killed" in notes.read_bytes())
        federation.kill("bank2")

    killer = threading.Thread(target=kill_once_it_is_asked)
    killer.start()
    replies, failures = transport.request(BANKS, b"hang bank2 until it is killed", 60)
    killer.join()
    assert sorted(replies) == ["bank1", "bank3"]
    assert failures == {"bank2": "connection-lost"}, "which is noticed before the deadline"
    federation.start("bank2")
    assert transport.wait_for(["bank2"], WAIT) == []
    assert transport.request(["bank2"], b"again", 20)[0] == {"bank2": b"bank2:again"}


def test_the_server_killed_and_started_again(transport: GrpcTransport, federation: Federation) -> None:
    pid = server.status(federation.market).pid
    assert pid is not None
    with pytest.raises(BazaarError, match="already up"):
        federation.up()
    psutil.Process(pid).kill()
    with pytest.raises(BazaarError, match="went away"):
        transport.request(BANKS, b"anybody?", 20)
    assert eventually(lambda: not server.status(federation.market).up)
    federation.up()
    with GrpcTransport(federation.market) as anew:
        assert anew.wait_for(BANKS, WAIT) == []
        assert anew.request(BANKS, b"back", 20) == ({name: name.encode() + b":back" for name in BANKS}, {})


def test_a_revoked_provider_is_out_at_once_and_for_good(transport: GrpcTransport, federation: Federation) -> None:
    federation.enroll("bank9")
    federation.start("bank9")
    assert transport.wait_for(["bank9"], WAIT) == []
    server.revoke(federation.market, "bank9")
    assert transport.request(["bank1", "bank9"], b"hello", 10) == (
        {"bank1": b"bank1:hello"},
        {"bank9": "not-connected"},
    )
    federation.kill("bank9")
    federation.start("bank9")
    assert eventually(lambda: "a connection of bank9 is refused" in server_log(federation)), "before it can say a word"
    assert "bank9" not in transport.connected()
    assert "bank9" in server.status(federation.market).revoked
    with pytest.raises(BazaarError, match="under a new name"):
        enrolment.invite(federation.market, "bank9")
    federation.kill("bank9")


def test_a_provider_cannot_take_another_s_name(transport: GrpcTransport, federation: Federation) -> None:
    thief = federation.enroll("bank8")
    federation.edit("bank8/invitation.json", lambda kit: kit.update(provider="bank1"))
    try:
        federation.start("bank8", thief)
        assert transport.wait_for(["bank8"], WAIT) == [], "it is who its certificate says, whatever it says itself"
        assert transport.request(["bank1"], b"who?", 10) == ({"bank1": b"bank1:who?"}, {})
    finally:
        federation.kill("bank8")


@pytest.mark.parametrize("who", ["nobody", "a stranger", "a member"])
def test_only_a_certificate_of_this_market_passes(federation: Federation, tmp_path: Path, who: str) -> None:
    market = enrolment.operator_folder(federation.market)
    key = certificate = None
    if who != "nobody":
        home = Federation(tmp_path, "fraud") if who == "a stranger" else federation
        kit = home.enroll("bank7") / "startup"
        key, certificate = (kit / "client.key").read_bytes(), (kit / "client.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials((market.folder / "ca/ca.pem").read_bytes(), key, certificate)
    with grpc.secure_channel(f"{market.host}:{market.port}", credentials, client_options()) as channel:
        if who == "a member":
            assert channel.unary_unary(f"/{SERVICE}/Hello")(b"", timeout=20)
        else:
            with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
                channel.unary_unary(f"/{SERVICE}/Hello")(b"", timeout=20)
        with pytest.raises(grpc.RpcError, match=r"UNIMPLEMENTED|UNAVAILABLE"):
            channel.unary_unary(f"/{LOCAL}/Command")(b"", timeout=20)


def test_consumers_come_in_by_the_owner_s_folder_alone(federation: Federation) -> None:
    folder = federation.market / "server"
    assert (folder / SOCKET).stat().st_mode & 0o077 == 0 and federation.market.stat().st_mode & 0o077 == 0


def test_a_frozen_provider_costs_the_others_nothing(transport: GrpcTransport, federation: Federation) -> None:
    frozen = psutil.Process(federation.processes["bank2"].pid)
    try:
        frozen.suspend()
        for _ in range(3):
            replies, failures = transport.request(BANKS, os.urandom(1_000_000), 2.0)
            assert (sorted(replies), failures) == (["bank1", "bank3"], {"bank2": "no-answer"})
    finally:
        frozen.resume()
    assert transport.wait_for(["bank2"], WAIT) == []
    assert transport.request(["bank2"], b"thawed", 20)[0] == {"bank2": b"bank2:thawed"}


def test_a_provider_that_is_there_before_the_server(tmp_path: Path) -> None:
    early = Federation(tmp_path, "early")
    said = early.enroll("bank1") / "provider.txt"

    def knocks() -> int:
        return said.read_text().count("nothing answers at localhost") if said.exists() else 0

    try:
        early.start("bank1")
        assert eventually(lambda: knocks() > 0, WAIT)
        early.kill("bank1")
        before = knocks()
        early.start("bank1")
        assert eventually(lambda: knocks() > before, WAIT)
        early.up()
        with GrpcTransport(early.market) as opened:
            assert opened.wait_for(["bank1"], WAIT) == []
    finally:
        early.close()


def test_a_provider_checks_its_kit_before_it_joins(federation: Federation, tmp_path: Path) -> None:
    kit = federation.root / "bank1"
    found = {finding.what: finding for finding in check(kit)}
    assert [what for what, finding in found.items() if not finding.ok] == []
    assert list(found) == ["key", "certificate", "name", "connection", "clock"]
    other = Federation(tmp_path, "fraud")
    lost = other.enroll("bank1")
    assert "nothing answers" in check(lost)[-1].says
    (lost / "startup" / "client.key").chmod(0o644)
    assert "chmod 600" in check(lost)[0].says
    port = enrolment.operator_folder(federation.market).port
    other.edit("bank1/invitation.json", lambda kit: kit.update(port=port))
    assert "is not the market's" in check(lost)[-1].says
    shutil.copy(kit / "startup/rootCA.pem", lost / "startup/rootCA.pem")
    assert "does not take this kit's certificate" in check(lost)[-1].says
    other.edit("bank1/invitation.json", lambda kit: kit.update(host="no-such-host.invalid"))
    assert "does not resolve" in check(lost)[-1].says
