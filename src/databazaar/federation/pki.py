"""Keys and X.509 certificates of a market: its authority, its server, and all that it has issued to providers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from databazaar.canonical import statement
from databazaar.errors import BazaarError
from databazaar.federation.enrolment_files import PRIVATE, CertificateFile, make_folder, read_file, read_small
from databazaar.files import write_whole

KEY, CERTIFICATE = "ca.key", "ca.pem"
PASSPHRASE = "DATABAZAAR_CA_PASSPHRASE"  # noqa: S105
Passphrase = Callable[[], str]
CA_DAYS = 3650
LEAF_DAYS = 365
KEY_BITS = 3072
_CLOCK_SKEW = dt.timedelta(minutes=10)
_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


def new_key() -> rsa.RSAPrivateKey:
    """RSA: kits and the signatures under receipts have always had it."""
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)


def key_pem(key: rsa.RSAPrivateKey, passphrase: str | None = None) -> bytes:
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        lock = serialization.BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def load_key(path: Path, passphrase: Callable[[], str] | None = None) -> rsa.RSAPrivateKey:
    """A private key; `passphrase` is called only where the key has one."""
    try:
        text = path.read_bytes()
        secret = passphrase().encode() if passphrase is not None and b"ENCRYPTED" in text else None
        key = serialization.load_pem_private_key(text, secret)
    except (OSError, ValueError, TypeError):  # not there, no key or another passphrase, or none where one is needed
        raise BazaarError(f"the key {path} cannot be read: check it and its passphrase, or put it back") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise BazaarError(f"{path} holds no RSA key: make the kit again")
    return key


def load_certificate(text: str) -> x509.Certificate:
    """One certificate in PEM; whatever else stands in the text is not taken."""
    try:
        return x509.load_pem_x509_certificate(text.encode("ascii"))
    except ValueError:
        raise BazaarError("the file holds no certificate: ask the sender for it again") from None


def read_certificate(path: Path, otherwise: str) -> x509.Certificate:
    """The certificate in a file. `otherwise` is the sentence for one that holds none."""
    try:
        return load_certificate(read_small(path).decode("ascii"))
    except (OSError, ValueError, BazaarError):
        raise BazaarError(otherwise) from None


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def is_authority(text: str) -> bool:
    """Is this the certificate of an authority that can issue others?"""
    try:
        found = load_certificate(text).extensions.get_extension_for_class(x509.BasicConstraints)
    except (BazaarError, ValueError, x509.ExtensionNotFound):
        return False
    return found.value.ca


def days_left(certificate: x509.Certificate) -> int:
    """Whole days until the certificate ends; negative afterwards."""
    return (certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)).days


def ended(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_after_utc < dt.datetime.now(dt.UTC)


def common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


class Authority(NamedTuple):
    """A market's certificate authority with its key at hand. The server never needs the key, which may lie on another
    medium, with a passphrase."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    def issue(self, name: str, public_key: rsa.RSAPublicKey, hosts: Sequence[str] = ()) -> x509.Certificate:
        """A leaf certificate. The subject is ours alone: nothing is copied from a request but its public key."""
        server_or_client = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives = [_host(host) for host in hosts] or [x509.DNSName(name)]
        end = min(dt.datetime.now(dt.UTC) + dt.timedelta(days=LEAF_DAYS), self.certificate.not_valid_after_utc)
        return (
            _builder(_name(name), self.certificate.subject, public_key, self.key.public_key(), end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([server_or_client]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self.key, hashes.SHA256())
        )


def new_authority(name: str) -> Authority:
    key = new_key()
    usage = _usage(sign_certificates=True)
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=CA_DAYS)
    builder = _builder(_name(name), _name(name), key.public_key(), key.public_key(), end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Authority(key, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()))


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
    authority = new_authority(f"{name}.ca")
    make_folder(home)
    write_whole(home / KEY, key_pem(authority.key, passphrase), PRIVATE)
    for folder in {home, market / "ca"}:
        write_whole(folder / CERTIFICATE, pem(authority.certificate).encode(), PRIVATE)
    return authority


def certificate_of(market: Path) -> x509.Certificate:
    otherwise = f"the authority's certificate in {market / 'ca'} cannot be read: put it back from a backup"
    return read_certificate(market / "ca" / CERTIFICATE, otherwise)


def record(market: Path, name: str, certificate: x509.Certificate) -> None:
    """Keep a certificate for good, beside all others of that name."""
    make_folder(market / "issued" / name)
    path = market / "issued" / name / f"{certificate.serial_number:x}.pem"
    write_whole(path, pem(certificate).encode(), PRIVATE)


def current(market: Path, name: str) -> x509.Certificate | None:
    """The provider's certificate as it was sent to it last."""
    path = market / "certificates" / f"{name}.json"
    if not path.exists():
        return None
    return load_certificate(read_file(path, CertificateFile, f"{path} cannot be read: put it back").certificate)


def issued(market: Path, name: str) -> list[x509.Certificate]:
    """Every certificate that was ever issued to `name`, the latest last: what it signed long ago can be verified."""
    kept = [load_certificate(path.read_text()) for path in (market / "issued" / name).glob("*.pem")]
    kept.sort(key=lambda certificate: certificate.not_valid_before_utc)
    if (latest := current(market, name)) is not None:
        kept = [certificate for certificate in kept if certificate != latest] + [latest]
    return kept


def new_request(key: rsa.RSAPrivateKey, name: str) -> str:
    """A certificate request in PEM, signed by the key it is for."""
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode("ascii")


def read_request(text: str, name: str) -> rsa.RSAPublicKey:
    """The public key of a request, after checking its signature, its name and the strength of its key."""
    try:
        request = x509.load_pem_x509_csr(text.encode("ascii"))
        key = request.public_key()
    except ValueError:
        raise BazaarError(f"the certificate request of {name} cannot be read: have it made again") from None
    if not request.is_signature_valid or common_name(request.subject) != name:
        raise BazaarError(f"the certificate request is not one of {name}: have it made again from its invitation")
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < 2048:
        raise BazaarError(f"the key of {name} is not RSA of 2048 bits or more: have the request made again")
    return key


def sign(key: rsa.RSAPrivateKey, text: bytes) -> str:
    return key.sign(text, _PSS, hashes.SHA256()).hex()


def verifies(key: rsa.RSAPublicKey | None, text: bytes, signature: str) -> bool:
    """Whether there is a key, and the signature is its, under these bytes."""
    if key is None:
        return False
    try:
        key.verify(bytes.fromhex(signature), text, _PSS, hashes.SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


def prove(key: rsa.RSAPrivateKey, market: str, name: str, request: str) -> str:
    """The holder of `name`'s present key asks for a certificate of another one, or of the same."""
    return sign(key, _renewal(market, name, request))


def proves(certificate: x509.Certificate, market: str, name: str, request: str, proof: str) -> bool:
    """Was the request made by the holder of this certificate's key?"""
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)  # `issue` takes no other
    return verifies(key, _renewal(market, name, request), proof)


def _renewal(market: str, name: str, request: str) -> bytes:
    """What is signed says what it is for, so that it can serve for nothing else."""
    return statement("renewal", {"market": market, "provider": name, "request": request})


def check_certificate(text: str, authority_text: str, name: str, key: rsa.RSAPrivateKey) -> None:
    """Refuse a certificate that is not `name`'s, not for `key`, not by this authority, or not valid now."""
    try:
        certificate, authority = load_certificate(text), load_certificate(authority_text)
    except BazaarError:
        raise BazaarError(f"the certificate of {name} cannot be read: ask the operator for it again") from None
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):  # another key, another issuer's name, or a key of no use
        raise BazaarError(
            f"the certificate of {name} was not issued by the market that sent the invitation: "
            "ask the operator of that market for it"
        ) from None
    if common_name(certificate.subject) != name or certificate.public_key() != key.public_key():
        raise BazaarError(f"the certificate is not for {name}'s key: send the operator this kit's own request")
    if not certificate.not_valid_before_utc <= dt.datetime.now(dt.UTC) <= certificate.not_valid_after_utc:
        raise BazaarError(f"the certificate of {name} is not valid today: check the clock, or ask for a new one")


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, issuer_key: rsa.RSAPublicKey, end: dt.datetime
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )
