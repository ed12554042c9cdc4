"""The hub's process: it listens, says where, and serves until it is told to stop."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from databazaar.cli.interrupts import InterruptedByUser
from databazaar.cli.screen import say
from databazaar.errors import BazaarError
from databazaar.federation.enrolment import operator_folder
from databazaar.service import home, members
from databazaar.service.cash import CASHIERS
from databazaar.service.database.connection import Database
from databazaar.service.demo import make_demo
from databazaar.service.home import HubLock
from databazaar.service.http.app import create_app
from databazaar.service.http.connections import Listener, server_of
from databazaar.service.http.logs import write_logs
from databazaar.service.settings import Settings

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def check_tls(certificate: Path | None, key: Path | None) -> None:
    """Both files, which belong together; or none."""
    if (certificate is None) != (key is None):
        raise BazaarError("--tls-cert and --tls-key go together: give both, or neither")
    try:
        if certificate is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError):
        raise BazaarError(f"{certificate} and {key} are no certificate and its key: check both files") from None


def refuse_plain(address: str, has_tls: bool, proxy: str | None) -> None:
    """Passwords and tokens travel over TLS, unless they stay on this machine."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or parts.fragment:
        raise BazaarError(f"--address {address} must be such as https://market.example.org: correct it")
    if parts.scheme == "https" and not has_tls and proxy is None:
        raise BazaarError("an address with https:// needs --tls-cert and --tls-key, or --proxy: give one of them")
    if parts.scheme == "http" and has_tls:
        raise BazaarError("with --tls-cert the address begins with https://: give it with --address")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise BazaarError(f"{address} would show passwords to all on the way: use https://, or 127.0.0.1 alone")


def refuse_unfit(cash: str, federation: Path | None, proxy: str | None) -> None:
    """What would be noticed only when somebody pays, asks a site or signs in."""
    CASHIERS.build({"kind": cash})
    if federation is not None:
        operator_folder(federation)
    for one in (proxy or "127.0.0.1").split(","):
        try:
            ipaddress.ip_network(one.strip(), strict=False)
        except ValueError:
            raise BazaarError(
                f"--proxy {proxy} must be an IP address or network such as 10.0.0.2: correct it"
            ) from None


def refuse_issuer(issuer: str | None, client: str | None) -> None:
    """A party that can change what the identity provider says could sign in as anybody."""
    if (issuer is None) != (client is None):
        raise BazaarError("--oidc-issuer and --oidc-client go together: give both, or neither")
    parts = urlsplit(issuer or "https://none")
    if not parts.hostname or (parts.scheme != "https" and parts.hostname not in LOOPBACK):
        raise BazaarError(f"--oidc-issuer {issuer} must begin with https://: correct it")


def listener(host: str, port: int) -> socket.socket:
    """The socket, bound before anything else is done, so that a port that is taken costs nothing."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as reason:
        raise BazaarError(f"{host}:{port} cannot be listened at ({reason.strerror}): give another --port") from None


def serve(
    settings: Settings,
    database: Database,
    listening: socket.socket,
    tls: tuple[Path | None, Path | None],
    proxy: str | None,
    demo: bool,
) -> None:
    """Until SIGTERM or Ctrl-C. Runs go on where they were when the hub is started again."""
    if settings.runners > 0:
        HubLock(settings, database).release()  # a second hub is told so here: where uvicorn starts it is a traceback
    links = make_demo(settings, database) if demo else {}
    with database.read() as session:
        market = members.market(session)
    home.bind(settings, database)
    write_logs()
    app = create_app(settings, database, supervise=settings.runners > 0)
    server = server_of(app, settings, proxy, ssl_certfile=tls[0], ssl_keyfile=tls[1])
    say(f"{market.name} is at {settings.address}")
    for who, link in links.items():
        say(f"  {who}: {link}")
    app.state.web.broadcaster.ending = lambda: server.should_exit  # streams would be waited for
    try:
        with Listener(listening, settings, proxy) as bounded:
            server.run(sockets=[bounded])
    except InterruptedByUser:
        later = "the demo is over" if demo else "what runs goes on when the hub is started again"
        say(f"stopped; {later}", err=True)
