"""TLS between a market's server and its providers.

Both sides trust the market's authority alone, never the machine's. A provider also checks the server's host, that the
certificate is the market's server's and nobody else's, and the revocation list that its kit may have. gRPC can check
neither name nor list, so a provider looks at the server first (`trusted_certificate`), and then gives gRPC that one
certificate as all that it may trust. The server looks at its list when a stream begins (`market_server`).
"""

from __future__ import annotations

import logging
import socket
import ssl
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.federation.enrolment import Kit
from databazaar.federation.enrolment_files import stamps
from databazaar.federation.revocations import REVOKED
from databazaar.federation.wire import client_options, grpc

log = logging.getLogger(__name__)


class ServerCertificate:
    """The server's certificate and key for gRPC, which asks at each handshake whether there are new ones."""

    def __init__(self, startup: Path) -> None:
        self._authority = startup / "rootCA.pem"
        self._certificate, self._key = startup / "server.crt", startup / "server.key"
        self._seen = stamps(self._certificate, self._key)

    def current(self) -> Any:
        pairs = [(self._key.read_bytes(), self._certificate.read_bytes())]
        return grpc.ssl_server_certificate_configuration(pairs, self._authority.read_bytes())

    def renewed(self) -> Any:
        """Nothing where they are the same, or where they do not fit because they are just being replaced."""
        if (now := stamps(self._certificate, self._key)) == self._seen:
            return None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            made = self.current()
        except (OSError, ssl.SSLError) as reason:
            log.warning("the server's certificate cannot be read: %s", reason)
            return None
        self._seen = now
        return made


def client_context(kit: Kit) -> ssl.SSLContext:
    """A provider's side: the market's own authority, its revocation list, and TLS 1.3."""
    startup = kit.folder / "startup"
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        made.load_verify_locations(startup / "rootCA.pem")
        made.load_cert_chain(startup / "client.crt", startup / "client.key")
        if (startup / REVOKED).exists():
            made.load_verify_locations(startup / REVOKED)
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError):
        raise BazaarError(
            "client.crt and client.key do not belong together: put the operator's certificate into the kit again, or "
            "make a new kit from an invitation of the operator"
        ) from None
    return made


def trusted_certificate(kit: Kit, timeout: float = 5.0) -> bytes:
    """The certificate of the market's server as it answers now, in PEM; a BazaarError where somebody else answers."""
    context = client_context(kit)
    where = f"{kit.host}:{kit.port}"
    try:
        plain = socket.create_connection((kit.host, kit.port), timeout=timeout)
    except OSError:
        raise BazaarError(
            f"nothing answers at {where}: ask the operator if the server is up, "
            "and your network's keeper if you are let out to that port"
        ) from None
    with plain:
        try:
            with context.wrap_socket(plain, server_hostname=kit.host) as secure:
                found, encoded = secure.getpeercert() or {}, secure.getpeercert(binary_form=True) or b""
        except ssl.SSLCertVerificationError as error:
            raise _stranger(where, error.verify_message.rstrip(".")) from None
        except OSError as error:
            raise BazaarError(f"the server at {where} breaks the connection off ({error}): ask the operator") from None
    subject: Any = found.get("subject", ())
    if [value for part in subject for field, value in part if field == "commonName"] != [kit.identity]:
        raise _stranger(where, f"the certificate is not {kit.identity}'s")
    return ssl.DER_cert_to_PEM_cert(encoded).encode()


def _stranger(where: str, why: str) -> BazaarError:
    return BazaarError(f"the server at {where} is not the market's ({why}): ask the operator")


def open_channel(kit: Kit, timeout: float = 5.0) -> Any:
    """A gRPC channel to the market's server, and to nobody else: it goes on only with the certificate just seen."""
    trusted = trusted_certificate(kit, timeout)
    startup = kit.folder / "startup"
    credentials = grpc.ssl_channel_credentials(
        trusted, (startup / "client.key").read_bytes(), (startup / "client.crt").read_bytes()
    )
    host = f"[{kit.host}]" if ":" in kit.host else kit.host
    return grpc.secure_channel(f"{host}:{kit.port}", credentials, client_options())
