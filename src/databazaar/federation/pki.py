"""Keys and X.509 certificates of a market: one authority, one server, one certificate a provider."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from databazaar.errors import BazaarError

CA_DAYS = 3650
LEAF_DAYS = 365
KEY_BITS = 3072
_CLOCK_SKEW = dt.timedelta(minutes=10)


def new_key() -> rsa.RSAPrivateKey:
    """RSA, because FLARE's identity challenge signs with RSA only."""
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)


def key_pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def load_key(path: Path) -> rsa.RSAPrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise BazaarError(f"{path} holds no RSA key: make the kit again")
    return key


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def new_authority(name: str) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """The market's own certificate authority."""
    key = new_key()
    usage = _usage(sign_certificates=True)
    builder = _builder(_name(name), _name(name), key.public_key(), key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return key, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def issue(
    authority_key: rsa.RSAPrivateKey,
    authority: x509.Certificate,
    name: str,
    public_key: rsa.RSAPublicKey,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """A leaf certificate. The subject is ours alone: nothing is copied from a request but its public key."""
    server_or_client = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    alternatives = [_host(host) for host in hosts] or [x509.DNSName(name)]
    return (
        _builder(_name(name), authority.subject, public_key, authority_key.public_key(), LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([server_or_client]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


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


def check_certificate(text: str, authority_text: str, name: str, key: rsa.RSAPrivateKey) -> None:
    """Refuse a certificate that is not `name`'s, not for `key`, not by this authority, or not valid now."""
    try:
        certificate = x509.load_pem_x509_certificate(text.encode("ascii"))
        authority = x509.load_pem_x509_certificate(authority_text.encode("ascii"))
    except ValueError:
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
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, issuer_key: rsa.RSAPublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )
