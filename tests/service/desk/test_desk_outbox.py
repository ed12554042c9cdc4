"""Webhooks: told in the transaction, signed, sent again until taken, and never to an address inside."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import select

from databazaar.service import jobs, outbox
from databazaar.service.database.tables import Outgoing, now
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.outbox import DELAYS, Parcel, signature_of
from desk_market import SPEC, DeskMarket, table

pytestmark = pytest.mark.process


class Listener:
    """A server of somebody who wants to be told; it answers with `status`."""

    def __init__(self) -> None:
        self.status, self.heard = 204, list[tuple[dict[str, str], bytes]]()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.heard.append((dict(self.headers), body))
                self.send_response(listener.status)
                self.send_header("Location", f"http://127.0.0.1:{listener.port}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?x=1"


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    thread = threading.Thread(target=listener.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield listener
    listener.server.shutdown()
    thread.join()
    listener.server.server_close()


def parcel(url: str) -> Parcel:
    return Parcel("1", url, "secret", "job", b"{}")


def test_what_happens_to_a_job_is_told_signed(market: DeskMarket, listener: Listener) -> None:
    with market.database.begin() as session:
        secret = outbox.add_webhook(session, market["buyer"], listener.url, private=True).secret
        outbox.add_webhook(session, market["rival"], listener.url, private=True)
        market.offer(session, "north", 1)
        given: dict[str, Any] = {"files": {"holdout": market.upload(session, "buyer", table(9))}, "spec": SPEC}
        job = jobs.draft(session, market["buyer"], market.settings, name="Late", offers=["north-sales"], **given)
    with pytest.raises(ZeroDivisionError), market.database.begin() as session:
        jobs.withdraw(session, market["buyer"], job.id)
        raise ZeroDivisionError
    assert outbox.deliver_due(market.database, private=True) == 1
    ((headers, body),) = listener.heard
    assert json.loads(body)["state"] == "draft" and headers["Bazaar-Event"] == "job"
    assert headers["Bazaar-Signature"] == signature_of(secret, headers["Bazaar-Timestamp"], body)
    assert signature_of("another", headers["Bazaar-Timestamp"], body) != headers["Bazaar-Signature"]
    assert outbox.deliver_due(market.database, private=True) == 0
    assert len(listener.heard) == 1


def test_what_is_not_taken_is_sent_again_for_a_day(small: DeskMarket) -> None:
    """And what one hub is outbox, another does not send meanwhile."""
    clock, sent = [now()], list[dt.datetime]()
    with small.database.begin() as session:
        outbox.add_webhook(session, small["buyer"], "https://example.org/")
        outbox.tell(session, small["buyer"].organisation_id, "job", {"state": "draft"})

    def refused(parcel: Parcel, private: bool) -> bool:
        sent.append(clock[0])
        assert outbox.deliver_due(small.database, lambda *_: pytest.fail("sent twice"), clock=lambda: clock[0]) == 0
        return False

    def deliver() -> Outgoing:
        assert outbox.deliver_due(small.database, refused, clock=lambda: clock[0]) == 0
        with small.database.read() as session:
            return session.scalars(select(Outgoing)).one()

    begun = clock[0]
    while (left := deliver()).given_up_at is None:
        known = len(sent)
        clock[0] = left.next_at - dt.timedelta(seconds=1)
        deliver()
        assert len(sent) == known
        clock[0] = left.next_at
    assert len(sent) == len(DELAYS) + 1 and left.delivered_at is None
    assert dt.timedelta(hours=20) < sent[-1] - begun < dt.timedelta(hours=24)
    clock[0] += dt.timedelta(days=9)
    deliver()
    assert len(sent) == len(DELAYS) + 1


def test_a_removed_webhook_is_told_nothing_more(small: DeskMarket) -> None:
    with small.database.begin() as session:
        hook = outbox.add_webhook(session, small["buyer"], "https://example.org/").webhook
        outbox.tell(session, small["buyer"].organisation_id, "job", {})
        outbox.remove_webhook(session, small["buyer"], hook.id)
        assert outbox.webhooks(session, small["buyer"]) == []
    assert outbox.deliver_due(small.database, lambda *_: pytest.fail("was sent")) == 0


def test_only_a_good_answer_counts_and_redirects_are_not_followed(listener: Listener) -> None:
    for status, taken in ((200, True), (204, True), (302, False), (307, False), (404, False), (500, False)):
        listener.status = status
        assert outbox.post(parcel(listener.url), private=True) is taken
    assert len(listener.heard) == 6


def test_nothing_is_sent_to_addresses_inside(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outbox.post(parcel(listener.url)) is False
    assert outbox.post(parcel(f"http://localhost:{listener.port}/")) is False
    assert outbox.post(parcel("https://no.such.host.invalid/")) is False
    asked = []

    def resolved(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        addresses = ("93.184.216.34", "127.0.0.1") if len(asked) == 1 else ("127.0.0.1",)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with pytest.raises(OSError, match="not public"):
        outbox.checked_address("rebinding.example", listener.port, private=False)
    assert listener.heard == []


def test_it_connects_to_the_address_that_was_checked(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has another address a moment later leads nowhere else: it is looked up once."""
    asked = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert outbox.post(parcel(f"http://hook.example:{listener.port}/"), private=True)
    assert asked == ["hook.example"]
    assert listener.heard[0][0]["Host"] == f"hook.example:{listener.port}"


PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"]
INSIDE = [
    *("127.0.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"),
    *("2002:7f00:1::", "2001:db8::1", "240.0.0.1"),
]


def test_which_addresses_are_public() -> None:
    assert [address for address in PUBLIC if not outbox.is_public(address)] == []
    assert [address for address in INSIDE if outbox.is_public(address)] == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_one_who_never_ends_his_answer_is_hung_up_on(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                while True:
                    connection.sendall(b"H" if scheme == "http" else b"\x16")
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        assert outbox.post(parcel(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/"), private=True) is False
        thread.join()


def test_which_addresses_can_be_webhooks(small: DeskMarket) -> None:
    unfit = [
        *("http://example.org/", "ftp://example.org/", "example.org", "https://", "https://[::1", "https://a b/"),
        *("https://user@example.org/", "https://:secret@example.org/", "https://example.org/#x", "https://ä.example/"),
        *(
            "https://example.org:99999/",
            "https://example.org:0/",
            "https://example.org/" + "x" * 1000,
            "https://a\r\nb/",
        ),
    ]
    with small.database.begin() as session:
        for url in unfit:
            with pytest.raises(InvalidError, match="url must"):
                outbox.add_webhook(session, small["buyer"], url)
        made = [outbox.add_webhook(session, small["buyer"], "https://example.org/") for _ in range(10)]
        assert len({secret for _, secret in made}) == 10
        with pytest.raises(ConflictError, match="at most 10"):
            outbox.add_webhook(session, small["buyer"], "https://example.org/")
