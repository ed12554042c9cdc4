"""Real processes, real certificates, real kills."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import onboarding, server
from databazaar.federation.check import check
from databazaar.federation.lanes import Queue
from databazaar.federation.transport import FlareTransport
from loopback import MAX_BYTES, WAIT, Federation, eventually, server_log

pytestmark = [pytest.mark.slow, pytest.mark.process]
BANKS = ["bank1", "bank2", "bank3"]


def test_every_provider_answers_for_itself(transport: FlareTransport) -> None:
    payload = os.urandom(1_000_000)
    replies, failures = transport.request([*BANKS, "bank1", "nobody"], payload, 20)
    assert replies == {name: name.encode() + b":" + payload for name in BANKS}
    assert failures == {"nobody": "not-connected"}


def test_an_empty_payload_and_a_subset(transport: FlareTransport) -> None:
    assert transport.request(["bank2"], b"", 20) == ({"bank2": b"bank2:"}, {})


def test_a_hung_provider_does_not_hold_the_others_up_and_its_late_reply_is_dropped(
    transport: FlareTransport, federation: Federation
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
        with FlareTransport(federation.market, consumer) as transport:
            return transport.request([name], payload, seconds)

    future: Future[object] = Future()
    threading.Thread(target=lambda: future.set_result(ask())).start()
    return future


def test_consumers_take_turns_who_waits_is_not_late_and_who_is_gone_does_not_wait(federation: Federation) -> None:
    released, market = federation.root / "bank2" / "released", federation.market
    try:
        first = asking(federation, "north", "bank2", b"hang bank2", 60.0)
        assert eventually(lambda: server.queues(market) == {"bank2": Queue(1, {}, {"north": 1}, {})})
        began, second = time.monotonic(), asking(federation, "south", "bank2", b"hello", 4.0)
        killed = server.connect(market)
        header = {"op": "request", "id": 1, "names": ["bank2"], "timeout": 60.0, "consumer": "killed"}
        killed.send(header, b"of no use")
        both = {"south": 1, "killed": 1}
        assert eventually(lambda: server.queues(market) == {"bank2": Queue(1, both, {"north": 1}, {})})
        killed.close()
        assert eventually(lambda: server.queues(market) == {"bank2": Queue(1, {"south": 1}, {"north": 1}, {})})
        shown = CliRunner().invoke(app, ["federation", "status", "--folder", str(market)]).output
        assert "member   bank2: connected\n  asked   north: 1\n  waiting south: 1\n" in shown
        assert eventually(lambda: time.monotonic() > began + 4.5), "longer than the deadline of the one that waits"
        released.touch()
        assert first.result(20) == ({"bank2": b"bank2:hang bank2"}, {})
        assert second.result(20) == ({"bank2": b"bank2:hello"}, {})
        assert eventually(lambda: server.queues(market) == {})
        assert b"of no use" not in (federation.root / "bank2" / "notes.txt").read_bytes()
    finally:
        released.unlink(missing_ok=True)


def test_a_server_that_is_up_takes_another_capacity(federation: Federation) -> None:
    released, market = federation.root / "bank3" / "released", federation.market
    try:
        asked = [asking(federation, consumer, "bank3", b"hang bank3", 60.0) for consumer in ("north", "south")]
        assert eventually(lambda: [sum(queue.waiting.values()) for queue in server.queues(market).values()] == [1])
        assert server.set_capacity(market, "bank3", 2)
        assert eventually(lambda: server.queues(market) == {"bank3": Queue(2, {}, {"north": 1, "south": 1}, {})})
        released.touch()
        assert {str(one.result(20)) for one in asked} == {str(({"bank3": b"bank3:hang bank3"}, {}))}
        assert server.set_capacity(market, "bank3", 1)
    finally:
        released.unlink(missing_ok=True)


def test_the_text_of_a_provider_s_exception_stays_with_it(transport: FlareTransport, federation: Federation) -> None:
    replies, failures = transport.request(BANKS, b"fail bank3", 20)
    assert sorted(replies) == ["bank1", "bank2"]
    assert failures == {"bank3": "provider-error"}
    assert "a secret" in (federation.root / "bank3" / "provider.txt").read_text()
    assert "a secret" not in server_log(federation)


def test_sizes_are_bounded_on_both_sides(transport: FlareTransport) -> None:
    _, failures = transport.request(["bank1"], f"big bank1 {MAX_BYTES + 1}".encode(), 20)
    assert failures == {"bank1": "reply-too-large"}
    with pytest.raises(BazaarError, match="over the limit"):
        transport.request(["bank1"], bytes(MAX_BYTES + 1), 20)
    assert transport.request(["bank1"], b"still here", 20)[0] == {"bank1": b"bank1:still here"}


def test_a_provider_killed_in_mid_request_and_started_again(transport: FlareTransport, federation: Federation) -> None:
    children = federation.children("bank2")
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
    assert psutil.wait_procs(children, timeout=5)[1] == [], "FLARE's client ends with the provider's process"
    federation.start("bank2")
    assert transport.wait_for(["bank2"], WAIT) == []
    assert transport.request(["bank2"], b"again", 20)[0] == {"bank2": b"bank2:again"}


def test_flare_s_client_alone_killed_comes_back(transport: FlareTransport, federation: Federation) -> None:
    for child in federation.children("bank3"):
        child.kill()
    assert eventually(lambda: "bank3" not in transport.connected())
    assert transport.wait_for(["bank3"], WAIT) == []
    assert transport.request(["bank3"], b"again", 20)[0] == {"bank3": b"bank3:again"}


def test_the_server_killed_and_started_again(transport: FlareTransport, federation: Federation) -> None:
    pid = server.status(federation.market).pid
    assert pid is not None
    with pytest.raises(BazaarError, match="already up"):
        federation.up()
    psutil.Process(pid).kill()
    with pytest.raises(BazaarError, match="went away"):
        transport.request(BANKS, b"anybody?", 20)
    assert eventually(lambda: not server.status(federation.market).up)
    federation.up()
    with FlareTransport(federation.market) as anew:
        assert anew.wait_for(BANKS, WAIT) == []
        assert anew.request(BANKS, b"back", 20) == ({name: name.encode() + b":back" for name in BANKS}, {})


def test_a_revoked_provider_is_out_at_once_and_for_good(transport: FlareTransport, federation: Federation) -> None:
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
        onboarding.invite(federation.market, "bank9")
    federation.kill("bank9")


def test_a_provider_cannot_take_another_s_name(transport: FlareTransport, federation: Federation) -> None:
    thief = federation.enroll("bank8")
    federation.edit("bank8/invitation.json", lambda kit: kit.update(provider="bank1"))
    try:
        federation.start("bank8", thief)
        assert eventually(lambda: "authenticated as 'bank8' but claimed endpoint 'bank1'" in server_log(federation))
        assert transport.request(["bank1"], b"who?", 10) == ({"bank1": b"bank1:who?"}, {})
    finally:
        federation.kill("bank8")


@pytest.mark.parametrize("who", ["nobody", "a stranger", "a member"])
def test_only_a_certificate_of_this_market_passes(federation: Federation, tmp_path: Path, who: str) -> None:
    market = onboarding.operator_folder(federation.market)
    context = ssl.create_default_context(cafile=str(market.folder / "ca/ca.pem"))
    if who != "nobody":
        home = Federation(tmp_path, "fraud") if who == "a stranger" else federation
        kit = home.enroll("bank7") / "startup"
        context.load_cert_chain(kit / "client.crt", kit / "client.key")

    def hello() -> bytes:
        with (
            socket.create_connection((market.host, market.port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=market.host) as wrapped,
        ):
            wrapped.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return wrapped.recv(100)

    if who == "a member":
        assert hello().startswith(b"HTTP/1.1")
    else:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert hello() == b"", "the server hung up"


def test_the_relay_wants_its_token(federation: Federation) -> None:
    channel = server.connect(federation.market)
    channel.close()
    relay = federation.market / "server" / "relay.json"
    assert relay.stat().st_mode & 0o777 == 0o600
    kept = relay.read_text()
    try:
        federation.edit("market/server/relay.json", lambda value: value.update(token="0" * 64))
        with pytest.raises(BazaarError), FlareTransport(federation.market) as opened:
            opened.connected()
    finally:
        relay.write_text(kept)


def test_a_frozen_provider_costs_the_others_nothing(transport: FlareTransport, federation: Federation) -> None:
    frozen = [psutil.Process(federation.processes["bank2"].pid), *federation.children("bank2")]
    try:
        for process in frozen:
            process.suspend()
        for _ in range(3):
            replies, failures = transport.request(BANKS, os.urandom(1_000_000), 2.0)
            assert (sorted(replies), failures) == (["bank1", "bank3"], {"bank2": "no-answer"})
    finally:
        for process in frozen:
            process.resume()
    assert transport.wait_for(["bank2"], WAIT) == []
    assert transport.request(["bank2"], b"thawed", 20)[0] == {"bank2": b"bank2:thawed"}


def test_a_provider_that_is_there_before_the_server(tmp_path: Path) -> None:
    early = Federation(tmp_path, "early")
    log = early.enroll("bank1") / "log.txt"

    def knocks() -> int:
        return log.read_text().count("re-challenge") if log.exists() else 0

    try:
        early.start("bank1")
        assert eventually(lambda: knocks() > 0, WAIT)
        children = early.children("bank1")
        early.kill("bank1")
        assert psutil.wait_procs(children, timeout=10)[1] == [], "no process stays behind, connected or not"
        before = knocks()
        early.start("bank1")
        assert eventually(lambda: knocks() > before, WAIT)
        early.up()
        with FlareTransport(early.market) as opened:
            assert opened.wait_for(["bank1"], WAIT) == []
    finally:
        early.close()


def test_a_provider_checks_its_kit_before_it_joins(federation: Federation, tmp_path: Path) -> None:
    kit = federation.root / "bank1"
    found = {finding.what: finding for finding in check(kit)}
    assert [what for what, finding in found.items() if not finding.ok] == []
    assert list(found) == ["key", "certificate", "policy", "name", "connection", "clock"]
    other = Federation(tmp_path, "fraud")
    lost = other.enroll("bank1")
    assert "nothing answers" in check(lost)[-1].says
    (lost / "startup" / "client.key").chmod(0o644)
    assert "chmod 600" in check(lost)[0].says
    other.edit("bank1/local/resources.json", lambda kit: kit["components"].append({"path": "nvflare.Launcher"}))
    assert "code other than ours" in check(lost)[2].says
    port = onboarding.operator_folder(federation.market).port
    other.edit("bank1/invitation.json", lambda kit: kit.update(port=port))
    assert "is not the market's" in check(lost)[-1].says
    shutil.copy(kit / "startup/rootCA.pem", lost / "startup/rootCA.pem")
    assert "does not take this kit's certificate" in check(lost)[-1].says
    other.edit("bank1/invitation.json", lambda kit: kit.update(host="no-such-host.invalid"))
    assert "does not resolve" in check(lost)[-1].says
