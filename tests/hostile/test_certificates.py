"""Servers that are not the market's, and certificates that count no more. Every handshake here is a real one."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import shutil
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from nvflare.apis.fl_constant import ConnectionSecurity
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.private.fed.utils.identity_utils import IdentityAsserter, IdentityVerifier, InvalidAsserterCert
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import authority, flare, onboarding, pki, processes, renewal, revocations
from databazaar.federation.check import check, stranger
from databazaar.federation.provider import _PROGRAM, market_answers
from databazaar.federation.tls import client_context, server_context
from databazaar.federation.transport import FlareTransport
from loopback import SEARCH_PATH, WAIT, Federation, eventually
from processes import Forked
from tls_party import TlsServer, plain_server, talks

pytestmark = pytest.mark.process

KEY = pki.new_key()
SYSTEM = authority.Authority(*pki.new_authority("public.ca"))
"""An authority that the machine trusts, and that certifies whoever pays."""


def ours(root: Path) -> authority.Authority:
    return authority.open_authority(root / "market", None, authority.from_environment)


def impostor(by: authority.Authority, name: str, host: str, root: Path) -> ssl.SSLContext:
    certificate = root / "impostor.pem"
    certificate.write_text(pki.pem(by.issue(name, KEY.public_key(), (host,))))
    (root / "impostor.key").write_bytes(pki.key_pem(KEY))
    return plain_server(certificate, root / "impostor.key")


def of_a_system_authority(root: Path) -> ssl.SSLContext:
    return impostor(SYSTEM, "fraud.server", "localhost", root)


def of_another_host(root: Path) -> ssl.SSLContext:
    return impostor(ours(root), "fraud.server", "elsewhere.example.org", root)


def of_another_name(root: Path) -> ssl.SSLContext:
    return impostor(ours(root), "bank2", "localhost", root)


def of_another_provider(root: Path) -> ssl.SSLContext:
    return plain_server(root / "bank2/startup/client.crt", root / "bank2/startup/client.key")


IMPOSTORS: list[tuple[Callable[[Path], ssl.SSLContext], bool, str]] = [
    (of_a_system_authority, True, "unable to get local issuer certificate"),
    (of_another_host, True, "Hostname mismatch, certificate is not valid for 'localhost'"),
    (of_another_name, True, "the certificate is not fraud.server's"),
    (of_another_provider, False, "purpose"),
]


def flare_params(kit: Path, side: str = "client") -> dict[str, object]:
    """What FLARE hands to its drivers."""
    startup = kit / "startup"
    certificate, key = {
        "client": (DriverParams.CLIENT_CERT, DriverParams.CLIENT_KEY),
        "server": (DriverParams.SERVER_CERT, DriverParams.SERVER_KEY),
    }[side]
    return {
        DriverParams.SCHEME.value: "http",
        DriverParams.SECURE.value: True,
        DriverParams.CONNECTION_SECURITY.value: ConnectionSecurity.MTLS,
        DriverParams.CA_CERT.value: str(startup / "rootCA.pem"),
        certificate.value: str(startup / f"{side}.crt"),
        key.value: str(startup / f"{side}.key"),
    }


def point_at(kit: Path, port: int) -> onboarding.Kit:
    """The kit's market is now at this port, as if somebody had taken its address."""
    before = str(onboarding.load_kit(kit).port)
    for file in (kit / "invitation.json", kit / "startup/fed_client.json"):
        file.write_text(file.read_text().replace(before, str(port)))
    return onboarding.load_kit(kit)


async def dial(context: ssl.SSLContext, port: int) -> None:
    """As FLARE's driver does."""
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.write(b"GET /f3 HTTP/1.1")


@pytest.mark.parametrize(("who", "fools_flare", "why"), IMPOSTORS)
def test_a_provider_talks_to_no_server_but_its_markets(
    root: Path, monkeypatch: pytest.MonkeyPatch, who: Callable[[Path], ssl.SSLContext], fools_flare: bool, why: str
) -> None:
    """With FLARE's own settings three of these four get to hear from it, which shows that they are well made."""
    (root / "system.pem").write_text(pki.pem(SYSTEM.certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(root / "system.pem"))
    kit = root / "bank1"
    with TlsServer(who(root)) as server:
        original = net_utils.get_ssl_context(flare_params(kit), ssl_server=False)
        if fools_flare:
            assert talks(original, server.port)[0].startswith(b"HTTP")
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                talks(original, server.port)
        server.heard.clear()
        with pytest.raises(ssl.SSLCertVerificationError, match=why):
            talks(flare.ssl_context(flare_params(kit), ssl_server=False), server.port)
        with pytest.raises(ssl.SSLCertVerificationError, match=why):
            asyncio.run(dial(flare.ssl_context(flare_params(kit), ssl_server=False), server.port))
        loaded = point_at(kit, server.port)
        assert why in stranger(loaded)
        finding = check(kit)[-1]
        assert not finding.ok and finding.says == stranger(loaded)
        assert finding.says.startswith(f"the server at localhost:{server.port} is not the market's (")
        assert "\n" not in finding.says
    assert server.heard == []


def test_a_provider_that_joins_says_so_in_one_sentence(root: Path, tmp_path: Path) -> None:
    """Our process does not even start FLARE's; and FLARE's, started all the same, sends nothing either."""
    (root / "system.pem").write_text(pki.pem(SYSTEM.certificate))
    environment = {"SSL_CERT_FILE": str(root / "system.pem"), "PYTHONPATH": SEARCH_PATH}
    kit = root / "bank1"
    with TlsServer(of_a_system_authority(root)) as server:
        point_at(kit, server.port)
        command = [sys.executable, "-m", "databazaar.federation.provider", str(kit), "--handler", "builtins:bytes"]
        with (tmp_path / "said.txt").open("wb") as said:
            provider = Forked(command, env={**os.environ, **environment}, stdout=said, stderr=said)
        expected = f"WARNING the server at localhost:{server.port} is not the market's (unable to get local issuer"
        try:
            assert eventually(lambda: expected in (tmp_path / "said.txt").read_text(), WAIT)
        finally:
            provider.terminate()
            provider.wait()
        assert not (kit / "log.txt").exists()
        knocked = len(server.refused)
        here, there = socket.socketpair()
        with here, there:
            end = {"DATABAZAAR_PROVIDER_FD": str(there.fileno())}
            child = processes.start_flare(
                _PROGRAM, kit, "fed_client.json", ["uid=bank1", "org=bank1"], 1000, {**environment, **end},
                fds=[there.fileno()],
            )  # fmt: skip
            try:
                assert eventually(lambda: len(server.refused) > knocked, WAIT)
            finally:
                processes.stop(child)
    assert server.heard == []


def test_a_provider_waits_for_its_market_and_speaks_of_its_certificate(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit, ending = onboarding.load_kit(root / "bank1"), threading.Event()
    certificate = root / "bank1/startup/client.crt"
    by = impostor(ours(root), "bank2", "localhost", root)

    class Once(threading.Event):
        """The market is back after the first wait."""

        def wait(self, timeout: float | None = None) -> bool:
            server.__exit__(None, None, None)
            return True

    server = TlsServer(by, kit.port).__enter__()
    assert market_answers(kit, Once(), 30.0)
    certificate.write_text("nothing")
    assert market_answers(kit, ending, 30.0)
    ending.set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pki, "LEAF_DAYS", 5.5)
        certificate.write_text(pki.pem(ours(root).issue("bank1", KEY.public_key())))
    assert not market_answers(kit, ending, 30.0)
    stranger_says, unreadable, soon = (record.getMessage() for record in caplog.records)
    assert "(the certificate is not fraud.server's): ask the operator" in stranger_says
    assert "cannot be read" in unreadable and "ends in 5 days" in soon


def test_nobody_at_the_address_is_no_stranger(root: Path) -> None:
    kit = onboarding.load_kit(root / "bank1")
    assert stranger(kit) == ""
    (root / "bank1/startup/fed_client.json").write_text("{}")
    with TlsServer(of_another_name(root), kit.port):
        assert stranger(kit) == ""
        assert (
            "fed_client.json cannot be read: put the certificate into the kit again" in check(root / "bank1")[-1].says
        )


def test_flare_gets_our_functions_before_it_loads_its_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_utils, "get_ssl_context", net_utils.get_ssl_context)
    monkeypatch.setattr(IdentityVerifier, "verify_common_name", IdentityVerifier.verify_common_name)
    flare.install()
    assert net_utils.get_ssl_context is flare.ssl_context
    assert IdentityVerifier.verify_common_name is flare.verify_common_name


def test_flare_gets_no_connection_without_tls(root: Path) -> None:
    with pytest.raises(CommError, match="without TLS"):
        flare.ssl_context({**flare_params(root / "bank1"), DriverParams.SECURE.value: False}, ssl_server=False)


def client_of(kit: Path) -> ssl.SSLContext:
    startup = kit / "startup"
    return client_context(startup / "client.crt", startup / "client.key", startup / "rootCA.pem", "fraud.server")


def server_of(root: Path) -> ssl.SSLContext:
    return flare.ssl_context(flare_params(root / "market/server", "server"), ssl_server=True)


def test_a_revoked_certificate_is_refused_by_a_server_that_is_up(root: Path) -> None:
    """By its serial number, in the handshake, with or without a host name in it, and two in the same second."""
    bank1, bank2 = client_of(root / "bank1"), client_of(root / "bank2")
    with TlsServer(server_of(root)) as server:
        assert talks(bank1, server.port)[0] and talks(bank2, server.port, "127.0.0.1")[0]
        said = CliRunner().invoke(app, ["federation", "revoke", "bank2", "--folder", str(root / "market")])
        assert said.exit_code == 0, said.output
        assert talks(bank1, server.port)[0]
        assert talks(bank2, server.port)[0] == talks(bank2, server.port, "127.0.0.1")[0] == b""
        renewal.revoke_certificates(root / "market", "bank1")
        assert talks(bank1, server.port)[0] == b""
    assert all("revoked" in reason for reason in server.refused), server.refused
    assert renewal.warnings(root / "market") == []
    listed = revocations.read(root / "market/ca/crl.pem", ours(root).certificate)
    issued = [onboarding.issued(root / "market", name)[0].serial_number for name in ("bank1", "bank2")]
    assert {entry.serial for entry in listed} == set(issued)


def test_a_session_from_before_the_revocation_is_not_resumed(root: Path) -> None:
    """FLARE's own server would: it gives out tickets, and who shows one is not looked at again."""
    startup = root / "market/server/startup"
    bank2 = client_of(root / "bank2")
    generous = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(startup / "rootCA.pem"))
    generous.verify_mode = ssl.CERT_REQUIRED
    generous.load_cert_chain(startup / "server.crt", startup / "server.key")
    with TlsServer(generous) as server:
        session = talks(bank2, server.port)[1]
        assert talks(bank2, server.port, session=session)[2]
    with TlsServer(server_of(root)) as server:
        session = talks(bank2, server.port)[1]
        renewal.revoke_certificates(root / "market", "bank2")
        assert talks(bank2, server.port, session=session)[0] == b""
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(startup / "rootCA.pem")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)version"):
            talks(old, server.port)


def test_of_lists_signed_in_advance_the_latest_whose_day_has_come_counts(root: Path) -> None:
    now, by = dt.datetime.now(dt.UTC).replace(microsecond=0), ours(root)
    serials = [onboarding.issued(root / "market", name)[0].serial_number for name in ("bank1", "bank2")]
    first, second = (revocations.Entry(serial, now, superseded=True) for serial in serials)
    days = [(-2, []), (-1, [first]), (1, [first, second])]
    lists = [revocations._sign(by, entries, now + dt.timedelta(days=d), 5 + d) for d, entries in days]
    (root / "market/server/startup/crl.pem").write_bytes(b"".join(lists))
    with TlsServer(server_of(root)) as server:
        assert talks(client_of(root / "bank1"), server.port)[0] == b""
        assert talks(client_of(root / "bank2"), server.port)[0]


def test_a_server_in_the_midst_of_a_renewal_goes_on_with_what_it_had(root: Path) -> None:
    """Its key is replaced a moment before its certificate; and without its list it takes nobody."""
    startup = root / "market/server/startup"
    with TlsServer(server_of(root)) as server:
        (startup / "server.key").write_bytes(pki.key_pem(KEY))
        assert talks(client_of(root / "bank1"), server.port)[0]
        renewal.renew_server(root / "market")
        (startup / "crl.pem").unlink()
        assert talks(client_of(root / "bank1"), server.port)[0] == b""


def test_a_revocation_counts_though_the_clock_was_ahead_and_is_set_right(root: Path) -> None:
    """And shuts nobody else out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revocations, "_now", lambda: dt.datetime(2031, 1, 1, tzinfo=dt.UTC))
        renewal.revoke_certificates(root / "market", "bank2")
    with TlsServer(server_of(root)) as server:
        for _ in range(2):
            assert talks(client_of(root / "bank1"), server.port)[0]
            assert talks(client_of(root / "bank2"), server.port)[0] == b""
            renewal.renew_server(root / "market")  # the list is signed anew
    (revoked,) = revocations.in_force(root / "market/ca/crl.pem")
    assert revoked == onboarding.issued(root / "market", "bank2")[0].serial_number


def test_a_list_of_another_authority_is_not_taken(root: Path) -> None:
    kept = root / "market/ca/crl.pem"
    kept.write_bytes(revocations._sign(SYSTEM, [], dt.datetime.now(dt.UTC), 1))
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.revoke_certificates(root / "market", "bank1")
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.take_list(root / "bank1", kept)
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.take_list(root / "bank1", Path("/dev/zero"))


def test_a_revoked_certificate_cannot_be_shown_to_flare_over_anothers_connection(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLARE takes the certificate of who registers from a message, not from TLS: bank1 has got hold of bank2's key."""
    monkeypatch.chdir(root / "market/server")
    startup = root / "bank2/startup"
    stolen = IdentityAsserter(str(startup / "client.key"), str(startup / "client.crt"))
    verifier = IdentityVerifier(str(startup / "rootCA.pem"))
    claim = ("bank2", "nonce", stolen.cert, stolen.sign_common_name("nonce"))
    assert flare.verify_common_name(verifier, *claim)
    renewal.revoke_certificates(root / "market", "bank2")
    assert verifier.verify_common_name(*claim), "FLARE itself knows no list"
    with pytest.raises(InvalidAsserterCert, match="bank2 is revoked"):
        flare.verify_common_name(verifier, *claim)


def test_a_server_whose_key_was_stolen_is_refused_by_who_has_the_list(root: Path, tmp_path: Path) -> None:
    stolen = Path(shutil.copytree(root / "market/server/startup", tmp_path / "stolen"))
    with TlsServer(server_of(root)) as server, TlsServer(server_context(
        stolen / "server.crt", stolen / "server.key", stolen / "rootCA.pem")) as thief:  # fmt: skip
        older = (root / "market/ca/crl.pem").read_bytes()
        assert talks(client_of(root / "bank1"), thief.port)[0]
        said = CliRunner().invoke(app, ["federation", "sign", "--server", "--stolen", "--folder", str(root / "market")])
        assert said.exit_code == 0 and "send" in said.output
        listed = str(root / "market/ca/crl.pem")
        taken = CliRunner().invoke(app, ["provider", "complete", listed, "--kit", str(root / "bank1")])
        assert taken.exit_code == 0, taken.output
        with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
            talks(client_of(root / "bank1"), thief.port)
        assert talks(client_of(root / "bank1"), server.port)[0], "the server took its new certificate while it was up"
    (tmp_path / "older.pem").write_bytes(older)
    with pytest.raises(BazaarError, match="is older than the list that is there"):
        renewal.take_list(root / "bank1", tmp_path / "older.pem")


@pytest.mark.slow
def test_certificates_are_renewed_under_a_running_market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewed provider is not lost for a moment; who holds its earlier key gets no connection any more."""
    monkeypatch.setattr(revocations, "GRACE", dt.timedelta(days=-2))
    federation = Federation(tmp_path)
    market, kit = federation.market, federation.enroll("bank1")
    try:
        federation.up()
        federation.start("bank1")
        with FlareTransport(market) as transport:
            assert transport.wait_for(["bank1"], WAIT) == []
            earlier = Path(shutil.copytree(kit, tmp_path / "earlier"))
            onboarding.complete(kit, onboarding.sign(market, renewal.renew(kit, new_key=True)))
            renewal.renew_server(market)
            assert transport.request(["bank1"], b"still there", WAIT)[0] == {"bank1": b"bank1:still there"}
            assert [finding.what for finding in check(kit) if not finding.ok] == []
            assert "does not take this kit's certificate" in check(earlier)[-1].says
            for child in federation.children("bank1"):
                child.kill()
            assert eventually(lambda: transport.connected() == [], WAIT)
            assert transport.wait_for(["bank1"], WAIT) == []
            assert transport.request(["bank1"], b"back", WAIT)[0] == {"bank1": b"bank1:back"}
        before, now = onboarding.issued(market, "bank1")
        assert before.public_key() != now.public_key()
        assert isinstance(now, x509.Certificate) and before.serial_number in revocations.in_force(market / "ca/crl.pem")
    finally:
        federation.close()
