"""TLS between a market's server and its providers, stricter than FLARE's own.

Both sides trust the market's authority alone, never the machine's, and look at its revocation list. A provider also
checks the server's host and that the certificate is the market's server's and nobody else's. Sessions are not
resumed, so that every connection is looked at anew.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

REVOKED = "crl.pem"
"""The revocation list, beside the authority's certificate."""
log = logging.getLogger(__name__)


def client_context(certificate: Path, key: Path, authority: Path, identity: str) -> ssl.SSLContext:
    """A provider's side: it goes on only with the server of its market, at the host that it dialled."""
    made = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority)

    class NamedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _check_name(self.getpeercert(), identity)

    class NamedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            _check_name(self.getpeercert(), identity)

    made.sslobject_class, made.sslsocket_class = NamedObject, NamedSocket
    return made


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """The server's side. Each handshake uses the files as they are then: a renewed certificate and a new revocation
    take effect while the server is up."""
    made = newest = _server_side(certificate, key, authority)
    files = (certificate, key, authority, authority.with_name(REVOKED))
    stamps = _stamps(files)

    def take_newest(secure: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal newest, stamps
        if (now := _stamps(files)) != stamps:
            try:
                newest, stamps = _server_side(certificate, key, authority), now
            except (OSError, ssl.SSLError) as reason:  # key and certificate are half-way through being replaced
                log.warning("the server's certificate or revocation list cannot be read: %s", reason)
        secure.context = newest

    made.sni_callback = take_newest  # called for every handshake, whether the client names a host or not
    return made


def _server_side(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    made = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority)
    made.num_tickets = 0
    return made


def _context(side: int, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(authority)
    made.load_cert_chain(certificate, key)
    revoked = authority.with_name(REVOKED)
    if revoked.exists():
        made.load_verify_locations(revoked)
        made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made


def _check_name(certificate: object, identity: str) -> None:
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    names = [value for part in subject for field, value in part if field == "commonName"]
    if names != [identity]:
        error = ssl.SSLCertVerificationError(f"the certificate is not {identity}'s")
        error.verify_message = f"the certificate is not {identity}'s"
        raise error


def _stamps(files: tuple[Path, ...]) -> list[tuple[int, int]]:
    """What changes when a file is replaced."""
    found = (file.stat() if file.exists() else None for file in files)
    return [(0, 0) if stat is None else (stat.st_ino, stat.st_mtime_ns) for stat in found]
