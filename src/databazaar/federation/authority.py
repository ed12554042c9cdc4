"""A market's certificate authority, and all that it has issued.

Its key is needed to sign, revoke and renew, and by the server never: it may lie on another medium, with a passphrase.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from databazaar.errors import BazaarError
from databazaar.federation import pki
from databazaar.federation.enrolment_files import CertificateFile, read_file
from databazaar.federation.private_files import PRIVATE, make_folder
from databazaar.files import write_whole

KEY, CERTIFICATE = "ca.key", "ca.pem"
PASSPHRASE = "DATABAZAAR_CA_PASSPHRASE"  # noqa: S105
Passphrase = Callable[[], str]


@dataclass(frozen=True)
class Authority:
    """The authority with its key at hand."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    def issue(self, name: str, public_key: rsa.RSAPublicKey, hosts: tuple[str, ...] = ()) -> x509.Certificate:
        return pki.issue(self.key, self.certificate, name, public_key, hosts)


def from_environment() -> str:
    """The passphrase of the authority's key. It is never an argument, which others on the machine could read."""
    found = os.environ.get(PASSPHRASE)
    if not found:
        raise BazaarError(f"the authority's key has a passphrase: set {PASSPHRASE}, or run this on a terminal")
    return found


def make_authority(market: Path, name: str, elsewhere: Path | None, passphrase: str | None) -> Authority:
    """A new authority. Its certificate stays with the market; its key too, or `elsewhere`, and then only there."""
    home = market / "ca"
    if elsewhere is not None:
        if elsewhere.resolve().is_relative_to(market.resolve()):
            raise BazaarError(f"{elsewhere} lies in the market's own folder: give a folder on another medium")
        if (elsewhere / KEY).exists():
            raise BazaarError(f"{elsewhere} holds an authority's key already: give another folder for this market's")
        home = elsewhere.resolve()
    key, certificate = pki.new_authority(f"{name}.ca")
    make_folder(home)
    write_whole(home / KEY, pki.key_pem(key, passphrase), PRIVATE)
    for folder in {home, market / "ca"}:
        write_whole(folder / CERTIFICATE, pki.pem(certificate).encode(), PRIVATE)
    return Authority(key, certificate)


def certificate_of(market: Path) -> x509.Certificate:
    """The authority's certificate."""
    try:
        return x509.load_pem_x509_certificate((market / "ca" / CERTIFICATE).read_bytes())
    except (OSError, ValueError):
        raise BazaarError(
            f"the authority's certificate in {market / 'ca'} cannot be read: put it back from a backup"
        ) from None


def open_authority(market: Path, elsewhere: Path | None, passphrase: Passphrase, kept: str = "") -> Authority:
    """The authority of the market, with the key from `elsewhere` if given; `kept` is where it was put at first."""
    path = (elsewhere or market / "ca") / KEY
    if not path.is_file():
        where = f"it was put into {kept}" if kept else "it is not in the market's folder"
        raise BazaarError(f"the key of the market's authority is not at {path} ({where}): give its folder with --ca")
    certificate = certificate_of(market)
    key = pki.load_key(path, passphrase)
    if key.public_key() != certificate.public_key():
        raise BazaarError(f"{path} is the key of another market's authority: give the folder of this one's with --ca")
    return Authority(key, certificate)


def record(market: Path, name: str, certificate: x509.Certificate) -> None:
    """Keep a certificate for good, beside all others of that name."""
    make_folder(market / "issued" / name)
    path = market / "issued" / name / f"{certificate.serial_number:x}.pem"
    write_whole(path, pki.pem(certificate).encode(), PRIVATE)


def current(market: Path, name: str) -> x509.Certificate | None:
    """The provider's certificate as it was sent to it last."""
    path = market / "certificates" / f"{name}.json"
    if not path.exists():
        return None
    return pki.load_certificate(read_file(path, CertificateFile, f"{path} cannot be read: put it back").certificate)


def issued(market: Path, name: str) -> list[x509.Certificate]:
    """Every certificate that was ever issued to `name`, the latest last: what it signed long ago can be verified."""
    kept = [pki.load_certificate(path.read_text()) for path in (market / "issued" / name).glob("*.pem")]
    kept.sort(key=lambda certificate: certificate.not_valid_before_utc)
    if (latest := current(market, name)) is not None:
        kept = [certificate for certificate in kept if certificate != latest] + [latest]
    return kept
