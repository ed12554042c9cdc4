"""`bazaar serve` where something is amiss, what an operator does at the machine; the client where the line fails."""

from __future__ import annotations

import http.server
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from databazaar.cli.app import app
from databazaar.cli.interrupts import interrupt as raise_interrupted
from databazaar.cli.interrupts import on_signal
from databazaar.client import Hub, HubError
from databazaar.client.hub import named_files
from databazaar.errors import BazaarError
from databazaar.service import credentials, members
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Account, Organisation
from databazaar.service.home import HubLock
from databazaar.service.receipts import HubKey, published
from databazaar.service.settings import Settings
from web_server import bound, certificate, until

pytestmark = pytest.mark.process


def serve(*args: str) -> Result:
    return CliRunner().invoke(app, ["serve", *args])


def refused(*args: str) -> str:
    outcome = serve(*args)
    assert isinstance(outcome.exception, BazaarError), outcome.output
    return str(outcome.exception)


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(tmp_path / "hub")


def test_a_port_that_is_taken_is_said_before_anything_is_made(home: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "give another --port" in refused("--home", home, "--port", port)
    assert not Path(home).exists()


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--address", "http://market.example"], "show passwords"),
        (["--address", "https://market.example"], "--tls-cert and --tls-key, or --proxy"),
        (["--address", "market.example"], "must be such as https://"),
        (["--address", "https://market.example/hub", "--proxy", "10.0.0.1"], "must be such as https://"),
        (["--tls-cert", "cert.pem"], "go together"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], "no certificate and its key"),
        (["--oidc-issuer", "https://id.example"], "go together"),
        (["--oidc-issuer", "http://id.example", "--oidc-client", "hub"], "must begin with https://"),
        (["--proxy", "proxy.example"], "must be an IP address or network"),
        (["--cash", "bitcoin"], "cashier kind 'bitcoin' is unknown"),
        (["--federation", "nowhere"], "bazaar federation init"),
        (["--database", "mysql://x"], "no database for a hub"),
        (["--database", "postgresql://127.0.0.1:1/none"], "does not answer"),
        ([], "bazaar serve operator EMAIL --market NAME"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_one_sentence(home: str, args: list[str], sentence: str) -> None:
    assert sentence in refused("--home", home, "--port", "0", *args)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in ("file", "file/hub"):
        for command in (["--port", "0"], ["audit"]):
            assert "folder with --home" in refused(*command, "--home", str(tmp_path / home))


def test_a_certificate_needs_an_address_with_https(home: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    given = ["--tls-cert", str(cert), "--tls-key", str(key), "--port", "0"]
    assert "begins with https://" in refused("--home", home, *given)


def test_another_database_is_upgraded_by_command(home: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"
    assert "bazaar serve upgrade" in refused("audit", "--home", home, "--database", url)
    assert "at version" in serve("upgrade", "--home", home, "--database", url).output
    assert serve("audit", "--home", home, "--database", url).exit_code == 0


def test_the_first_operator_is_made_at_the_machine(home: str) -> None:
    assert "--market" in refused("operator", "ann@x.example", "--home", home)
    made = serve("operator", "ann@x.example", "--market", "Harbour", "--home", home, "--address", "https://m.example/")
    link = made.output.split()[-1]
    assert link.startswith("https://m.example/join#")
    again = serve("operator", "Ann@x.example", "--home", home).output.split()[-1]
    database = Database(Settings(Path(home)).database_url)
    with database.begin() as session:
        assert members.market(session).name == "Harbour"
        assert credentials.redeem_link(session, again.rpartition("#")[2]).caller.operates
    with database.begin() as session, pytest.raises(BazaarError):
        credentials.redeem_link(session, link.rpartition("#")[2])
    database.dispose()
    assert "nobody here has the e-mail address" in refused("operator", "bob@x.example", "--home", home)


def test_a_hub_that_is_not_there_is_not_made_by_looking(home: str) -> None:
    for command in (["audit"], ["rotate-key"]):
        assert "--home" in refused(*command, "--home", home)
    assert not Path(home).exists()


def test_a_hubs_key_is_changed_at_the_machine(home: str) -> None:
    assert "--home" in refused("rotate-key", "--home", home)
    serve("operator", "ann@x.example", "--market", "Harbour", "--home", home)
    first = HubKey.of(Settings(Path(home))).public
    told = serve("rotate-key", "--home", home).output
    found = published(Settings(Path(home)))
    assert found["key"] in told and [one["key"] for one in found["former"]] == [first]


def test_a_second_hub_is_one_sentence(home: str) -> None:
    serve("operator", "ann@x.example", "--market", "Harbour", "--home", home)
    settings = Settings(Path(home))
    database = Database(settings.database_url)
    first = HubLock(settings, database)
    assert "another hub works" in refused("--home", home, "--port", "0")
    first.release()
    database.dispose()


def test_an_audit_that_fails_has_its_exit_code(home: str) -> None:
    serve("operator", "ann@x.example", "--market", "Harbour", "--home", home)
    assert json.loads(serve("audit", "--home", home, "--json").output)["ok"]
    database = Database(Settings(Path(home)).database_url)
    with database.begin() as session:
        whose = session.query(Organisation).one().id
        session.add(Account(name="cash:operator", organisation_id=whose, balance=5))
    database.dispose()
    broken = serve("audit", "--home", home)
    assert broken.exit_code == 1 and "BROKEN: cash:operator" in broken.output


def test_a_hub_serves_until_it_is_interrupted(home: str) -> None:
    """In this process: what stops it is what Ctrl-C sends."""
    serve("operator", "ann@x.example", "--market", "Harbour", "--home", home)
    with bound() as (_, address):
        pass

    def interrupt() -> None:
        try:
            until(lambda: _healthy(address), patience=120)
        finally:  # else a hub that is slow to start would be served for ever
            os.kill(os.getpid(), signal.SIGINT)

    stopping = threading.Thread(target=interrupt)
    loggers = [logging.getLogger(name) for name in ("databazaar", "uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    with on_signal(signal.SIGINT, raise_interrupted):
        stopping.start()
        outcome = serve("--home", home, "--port", address.rpartition(":")[2], "--runners", "0")
    stopping.join()
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate, logger.level = handlers, propagate, level
    assert outcome.exit_code == 0 and f"Harbour is at {address}" in outcome.output
    assert "goes on when the hub is started again" in outcome.output


def _healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").json()["supervisor"] is None
    except httpx.TransportError:
        return False


@pytest.mark.process
def test_without_the_packages_it_is_said_what_to_install(home: str) -> None:
    without = "import sys; sys.modules['argon2'] = None; from databazaar.cli import main; main()"
    command = [sys.executable, "-c", without, "serve", "--home", home, "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "argon2 is not installed: pip install 'databazaar[service]'" in done.stderr
    assert not Path(home).exists()


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def badly() -> Iterator[Callable[..., tuple[str, list[Any]]]]:
    """A server that gives these answers, one after the other, and notes the headers of what it was asked."""
    servers = []

    def make(*answers: Answer) -> tuple[str, list[Any]]:
        left, asked = list(answers), list[Any]()

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline()
                if self.raw_requestline and self.parse_request():
                    self.rfile.read(int(self.headers.get("content-length", 0)))
                    asked.append({name.lower(): value for name, value in self.headers.items()})
                    left.pop(0)(self)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Ends the connection without a word."""


def says(status: int, body: str, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


def test_a_post_is_repeated_under_one_key(badly: Callable[..., tuple[str, list[Any]]]) -> None:
    busy = says(503, '{"error": "busy", "code": "unavailable"}', retry_after="0")
    address, asked = badly(
        hang_up, busy, says(201, '{"name": "Harbour", "currency": "EUR", "decimals": 2, "fee_basis_points": 0}')
    )
    with Hub(address, "token") as hub:
        assert hub.set_fee(0).name == "Harbour"
        assert repr(hub) == f"Hub({address!r})"
    keys = {one["idempotency-key"] for one in asked}
    assert len(asked) == 3 and len(keys) == 1 and len(keys.pop()) == 32


def test_an_answer_of_another_kind_is_refused(badly: Callable[..., tuple[str, list[Any]]]) -> None:
    address, _ = badly(says(200, '{"name": "Harbour"}'), says(200, "[1]"))
    with Hub(address, "token") as hub:
        for _ in range(2):
            with pytest.raises(HubError, match="is it of another version"):
                hub.me()


def test_a_download_begins_again_and_is_whole_or_not_there(
    badly: Callable[..., tuple[str, list[Any]]], tmp_path: Path
) -> None:
    half = says(200, "half", content_length="8")
    address, _ = badly(half, says(200, "whole"), says(404, '{"error": "there is none", "code": "missing"}'))
    with Hub(address, "token") as hub:
        target = tmp_path / "new" / "model.zip"
        assert hub.download("job", "model", target).read_text() == "whole"
        with pytest.raises(HubError, match="there is none"):
            hub.download("job", "model", tmp_path / "other.zip")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["model.zip"]


def test_who_never_answers_is_said(badly: Callable[..., tuple[str, list[Any]]], tmp_path: Path) -> None:
    address, _ = badly(*[hang_up] * 6, says(200, "<html>"), says(500, "<html>"))
    with Hub(address, "token", attempts=2) as hub:
        for ask in (hub.me, lambda: hub.download("job", "model", tmp_path / "x"), lambda: list(hub.watch("job"))):
            with pytest.raises(HubError, match="cannot be reached"):
                ask()
    for status in (200, 500):
        with Hub(address, "token", attempts=1) as hub, pytest.raises(HubError, match="is the address right") as no_hub:
            hub.me()
        assert no_hub.value.status == status


@pytest.mark.parametrize(
    ("address", "token", "sentence"),
    [
        ("http://market.example", "token", "for all to read"),
        ("ftp://market.example", "token", "must begin with https"),
        ("https://ann:secret@market.example", "token", "must begin with https"),
        ("https://market.example", "", "no token"),
        ("https://market.example", "tok\nen", "no token"),
    ],
)
def test_what_is_no_hub_is_refused_at_once(address: str, token: str, sentence: str) -> None:
    with pytest.raises(BazaarError, match=sentence):
        Hub(address, token)
    assert "secret" not in sentence


def test_files_of_a_market_have_names_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(BazaarError, match="same name"):
        named_files({"data": {"holdout": "a/own.csv", "audit": "b/own.csv"}})
    with Hub("https://market.example", "token") as hub, pytest.raises(BazaarError, match="cannot be read"):
        hub.upload(tmp_path / "nothing.csv")
    (tmp_path / "market.toml").write_text("[market")
    with Hub("https://market.example", "token") as hub, pytest.raises(BazaarError, match="not valid TOML"):
        hub.draft_from_market(tmp_path / "market.toml")
