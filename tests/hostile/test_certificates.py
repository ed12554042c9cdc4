"""Servers that are not the market's, and certificates that count no more. Every handshake here is a real one."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import ssl
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, pki, renewal, revocations
from databazaar.federation.check import check
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.provider import ProviderNode
from databazaar.federation.revocations import Revoked
from databazaar.federation.tls import ServerCertificate, open_channel, trusted_certificate
from databazaar.federation.wire import SERVICE, client_options, grpc
from loopback import SEARCH_PATH, WAIT, Federation, eventually
from processes import Forked
from tls_party import TlsServer, plain_server

pytestmark = pytest.mark.process

KEY = pki.new_key()
SYSTEM = pki.new_authority("public.ca")
"""An authority that the machine trusts, and that certifies whoever pays."""


def ours(root: Path) -> pki.Authority:
    return enrolment.operator_folder(root / "market").authority(None, pki.from_environment)


def impostor(by: pki.Authority, name: str, host: str, root: Path) -> ssl.SSLContext:
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


IMPOSTORS: list[tuple[Callable[[Path], ssl.SSLContext], str]] = [
    (of_a_system_authority, "unable to get local issuer certificate"),
    (of_another_host, "Hostname mismatch, certificate is not valid for 'localhost'"),
    (of_another_name, "the certificate is not fraud.server's"),
    (of_another_provider, "purpose"),
]


def point_at(kit: Path, port: int) -> enrolment.Kit:
    """The kit's market is now at this port, as if somebody had taken its address."""
    before = str(enrolment.load_kit(kit).port)
    file = kit / "invitation.json"
    file.write_text(file.read_text().replace(before, str(port)))
    return enrolment.load_kit(kit)


@contextmanager
def grpc_server(startup: Path) -> Iterator[int]:
    """A gRPC server with these certificates, as the market's is one; it looks at no list, and says who called."""

    def hello(_: bytes, context: Any) -> bytes:
        return b"".join(context.auth_context()["x509_common_name"])

    methods = {"Hello": grpc.unary_unary_rpc_method_handler(hello)}
    server = grpc.server(ThreadPoolExecutor(2), [grpc.method_handlers_generic_handler(SERVICE, methods)])
    certificate = ServerCertificate(startup)
    credentials = grpc.dynamic_ssl_server_credentials(certificate.current(), certificate.renewed, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def hello(kit: enrolment.Kit) -> bytes:
    with open_channel(kit) as channel:
        said: bytes = channel.unary_unary(f"/{SERVICE}/Hello")(b"", timeout=20)
        return said


@pytest.mark.parametrize(("who", "why"), IMPOSTORS)
def test_a_provider_talks_to_no_server_but_its_markets(
    root: Path, monkeypatch: pytest.MonkeyPatch, who: Callable[[Path], ssl.SSLContext], why: str
) -> None:
    (root / "system.pem").write_text(pki.pem(SYSTEM.certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(root / "system.pem"))
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(root / "system.pem"))
    kit = root / "bank1"
    with TlsServer(who(root)) as server:
        loaded = point_at(kit, server.port)
        with pytest.raises(BazaarError, match=f"localhost:{server.port} is not the market's") as refused:
            open_channel(loaded)
        assert why in str(refused.value)
        finding = check(kit)[-1]
        assert not finding.ok and finding.says == str(refused.value) and "\n" not in finding.says
    assert server.heard == []


def test_grpc_goes_on_with_the_certificate_that_was_looked_at_and_no_other(root: Path) -> None:
    """Somebody in between lets the look pass to the market's server, and the connection to its own: with a certificate
    of the same authority, for the same host, that would pass for another reason."""
    startup = root / "market/server/startup"
    kit = enrolment.load_kit(root / "bank1")
    with grpc_server(startup) as port:
        looked = trusted_certificate(point_at(root / "bank1", port))
        assert looked.split() == (startup / "server.crt").read_bytes().split()
        assert hello(point_at(root / "bank1", port)) == b"bank1"
        renewal.renew_server(root / "market")
        keys = [(kit.folder / "startup" / name).read_bytes() for name in ("client.key", "client.crt")]
        credentials = grpc.ssl_channel_credentials(looked, *keys)
        with (
            grpc.secure_channel(f"localhost:{port}", credentials, client_options()) as channel,
            pytest.raises(grpc.RpcError, match="UNAVAILABLE"),
        ):
            channel.unary_unary(f"/{SERVICE}/Hello")(b"", timeout=20)
        assert hello(enrolment.load_kit(root / "bank1")) == b"bank1", "the server took its new one while it was up"


def test_a_provider_that_joins_says_so_in_one_sentence(root: Path, tmp_path: Path) -> None:
    kit = root / "bank1"
    with TlsServer(of_a_system_authority(root)) as server:
        point_at(kit, server.port)
        command = [sys.executable, "-m", "provider_process", str(kit), "builtins:bytes"]
        with (tmp_path / "said.txt").open("wb") as said:
            provider = Forked(command, env={**os.environ, "PYTHONPATH": SEARCH_PATH}, stdout=said, stderr=said)
        expected = f"WARNING the server at localhost:{server.port} is not the market's (unable to get local issuer"
        try:
            assert eventually(lambda: expected in (tmp_path / "said.txt").read_text(), WAIT)
        finally:
            provider.terminate()
            provider.wait()
    assert server.heard == []


def test_a_provider_waits_for_its_market_and_speaks_of_its_certificate(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kit = enrolment.load_kit(root / "bank1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pki, "LEAF_DAYS", 5.5)
        key = pki.load_key(kit.folder / "startup/client.key").public_key()
        (kit.folder / "startup/client.crt").write_text(pki.pem(ours(root).issue("bank1", key)))
    with TlsServer(impostor(ours(root), "bank2", "localhost", root)) as server:
        point_at(kit.folder, server.port)
        with ProviderNode(kit.folder, bytes, longest_pause=0.1):
            assert eventually(lambda: caplog.text.count("next try in 0.1 s") > 2)
    assert "(the certificate is not fraud.server's): ask the operator; next try" in caplog.text
    assert "ends in 5 days" in caplog.text and server.heard == []


def test_a_kit_whose_key_is_another_s_says_so(root: Path) -> None:
    kit = enrolment.load_kit(root / "bank1")
    (kit.folder / "startup/client.key").write_bytes(pki.key_pem(KEY))
    with pytest.raises(BazaarError, match=r"client.crt and client.key do not belong together"):
        open_channel(kit)


def serial_of(root: Path, name: str) -> int:
    return pki.issued(root / "market", name)[-1].serial_number


def revoked(root: Path) -> Revoked:
    return Revoked(root / "market/server")


def test_a_revoked_certificate_is_known_to_a_server_that_is_up(root: Path) -> None:
    """By its name and by its serial number, and two in the same second."""
    shut = revoked(root)
    banks = [("bank1", serial_of(root, "bank1")), ("bank2", serial_of(root, "bank2"))]
    assert [shut.why(*bank) for bank in banks] == ["", ""]
    said = CliRunner().invoke(app, ["federation", "revoke", "bank2", "--folder", str(root / "market")])
    assert said.exit_code == 0, said.output
    assert [shut.why(*bank) for bank in banks] == ["", "the name is revoked"]
    assert shut.why("another name", banks[1][1]) == "the certificate is revoked"
    renewal.revoke_certificates(root / "market", "bank1")
    assert shut.why(*banks[0]) == "the certificate is revoked"
    assert renewal.warnings(root / "market") == []
    listed = revocations.read(root / "market/ca/crl.pem", ours(root).certificate)
    assert {entry.serial for entry in listed} == {serial for _, serial in banks}


def test_a_renewed_certificate_counts_no_more_from_its_day_on(root: Path) -> None:
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    serials = [pki.issued(root / "market", name)[0].serial_number for name in ("bank1", "bank2")]
    dates = [now + dt.timedelta(days=days) for days in (-1, 1)]
    entries = [revocations.Revocation(serial, day, True) for serial, day in zip(serials, dates, strict=True)]
    (root / "market/server/startup/crl.pem").write_bytes(revocations._sign(ours(root), entries, 5))
    assert [revoked(root).why("bank", serial) for serial in serials] == ["the certificate is revoked", ""]


def test_a_server_in_the_midst_of_a_renewal_goes_on_with_what_it_had(root: Path) -> None:
    """Its key is replaced a moment before its certificate; and without its list it takes nobody."""
    startup = root / "market/server/startup"
    with grpc_server(startup) as port:
        kit = point_at(root / "bank1", port)
        (startup / "server.key").write_bytes(pki.key_pem(KEY))
        assert hello(kit) == b"bank1"
        renewal.renew_server(root / "market")
        assert hello(kit) == b"bank1"
    (startup / "crl.pem").unlink()
    assert revoked(root).why("bank1", 1) == "the server has no revocation list that can be read"


def test_a_revocation_counts_though_the_clock_was_ahead_and_is_set_right(root: Path) -> None:
    """And shuts nobody else out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revocations, "_now", lambda: dt.datetime(2031, 1, 1, tzinfo=dt.UTC))
        renewal.revoke_certificates(root / "market", "bank2")
    for _ in range(2):
        assert not revoked(root).why("bank1", serial_of(root, "bank1"))
        assert revoked(root).why("bank2", serial_of(root, "bank2"))
        renewal.renew_server(root / "market")  # the list is signed anew
    assert revocations.in_force(root / "market/ca/crl.pem") == {serial_of(root, "bank2")}


def test_a_list_of_another_authority_is_not_taken(root: Path) -> None:
    kept = root / "market/ca/crl.pem"
    kept.write_bytes(revocations._sign(SYSTEM, [], 1))
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.revoke_certificates(root / "market", "bank1")
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.take_list(root / "bank1", kept)
    with pytest.raises(BazaarError, match="is not this market's revocation list"):
        renewal.take_list(root / "bank1", Path("/dev/zero"))


def test_a_server_whose_key_was_stolen_is_refused_by_who_has_the_list(root: Path, tmp_path: Path) -> None:
    stolen = Path(shutil.copytree(root / "market/server/startup", tmp_path / "stolen"))
    with grpc_server(root / "market/server/startup") as port, grpc_server(stolen) as thief:
        older = (root / "market/ca/crl.pem").read_bytes()
        assert hello(point_at(root / "bank1", thief)) == b"bank1"
        said = CliRunner().invoke(app, ["federation", "sign", "--server", "--stolen", "--folder", str(root / "market")])
        assert said.exit_code == 0 and "send" in said.output
        listed = str(root / "market/ca/crl.pem")
        taken = CliRunner().invoke(app, ["provider", "complete", listed, "--kit", str(root / "bank1")])
        assert taken.exit_code == 0, taken.output
        with pytest.raises(BazaarError, match=r"is not the market.s .*revoked"):
            hello(enrolment.load_kit(root / "bank1"))
        assert hello(point_at(root / "bank1", port)) == b"bank1", "the server took its new one while it was up"
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
        with GrpcTransport(market) as transport:
            assert transport.wait_for(["bank1"], WAIT) == []
            earlier = Path(shutil.copytree(kit, tmp_path / "earlier"))
            enrolment.complete(kit, enrolment.sign(market, renewal.renew(kit, new_key=True)))
            renewal.renew_server(market)
            assert transport.request(["bank1"], b"still there", WAIT)[0] == {"bank1": b"bank1:still there"}
            assert [finding.what for finding in check(kit) if not finding.ok] == []
            assert "does not take this kit's certificate" in check(earlier)[-1].says
            federation.kill("bank1")
            assert eventually(lambda: transport.connected() == [], WAIT)
            federation.start("bank1")
            assert transport.wait_for(["bank1"], WAIT) == []
            assert transport.request(["bank1"], b"back", WAIT)[0] == {"bank1": b"bank1:back"}
        before, now = pki.issued(market, "bank1")
        assert before.public_key() != now.public_key()
        assert isinstance(now, x509.Certificate) and before.serial_number in revocations.in_force(market / "ca/crl.pem")
    finally:
        federation.close()
