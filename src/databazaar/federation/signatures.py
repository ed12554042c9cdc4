"""Signatures between the parties: RSA-PSS with SHA-256, by the keys of the market's own certificates.

A provider signs its replies, the market its receipts. What is signed is canonical JSON that begins with its kind, so a
signature under one is never one under the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from databazaar.federation import pki


class Signer:
    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key

    @classmethod
    def of_kit(cls, kit: Path) -> Signer:
        return cls(pki.load_key(kit / "startup" / "client.key"))

    def sign(self, text: bytes) -> str:
        return pki.sign(self._key, text)


@lru_cache(maxsize=4096)
def issued(certificate: str, authority: str, name: str, *, server: bool = False) -> rsa.RSAPublicKey | None:
    """The key of a certificate in PEM, if this authority has issued it for this name and for this end. The date plays
    no part: what was signed with a certificate holds after it has expired."""
    try:
        leaf = x509.load_pem_x509_certificate(certificate.encode("ascii"))
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode("ascii")))
        ends = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        key = leaf.public_key()
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return None
    end = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    if not isinstance(key, rsa.RSAPublicKey) or pki.common_name(leaf.subject) != name or end not in ends:
        return None
    return key


@dataclass(frozen=True)
class MarketKeys:
    """The keys on the market's side: those of its providers, by the certificates that it has issued, and its own."""

    folder: Path
    market: str
    authority: str
    certificate: str
    signer: Signer

    @classmethod
    def of(cls, folder: Path) -> MarketKeys:
        from databazaar.federation.enrolment import operator_folder

        market = operator_folder(folder)
        startup = market.server / "startup"
        return cls(
            market.folder,
            market.name,
            (startup / "rootCA.pem").read_text(),
            (startup / "server.crt").read_text(),
            Signer(pki.load_key(startup / "server.key")),
        )

    def certificates_of(self, provider: str) -> list[str]:
        """The provider's certificates in PEM that count now, the latest first. Where one was renewed there are two for
        some days: the provider signs with the earlier one until it has put the new one into its kit."""
        from databazaar.federation.revocations import REVOKED, in_force

        revoked = in_force(self.folder / "server" / "startup" / REVOKED)
        every = reversed(pki.issued(self.folder, provider))
        return [pki.pem(certificate) for certificate in every if certificate.serial_number not in revoked]

    def signed_with(self, provider: str, text: bytes, signature: str) -> str:
        """The certificate by which this provider has signed these bytes; empty where it has not."""
        for certificate in self.certificates_of(provider):
            if pki.verifies(issued(certificate, self.authority, provider), text, signature):
                return certificate
        return ""
