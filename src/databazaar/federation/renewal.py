"""Certificates that end soon: new ones for providers and for the server, and who has to be told.

provider   renew(kit)            → request, signed with the present key; then `sign` and `complete` as at first
operator   renew_server(folder)  a new key and certificate for the server, taken while it is up
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation import pki, revocations
from databazaar.federation.enrolment import (
    PENDING,
    certify_server,
    kit_certificate,
    load_kit,
    members,
    operator_folder,
    revoked,
)
from databazaar.federation.enrolment_files import PRIVATE, make_folder, write_json
from databazaar.federation.pki import Passphrase, certificate_of, current, from_environment, issued
from databazaar.federation.revocations import REVOKED
from databazaar.files import write_whole

SOON = 30
"""Days before the end of a certificate in which its owner is told to renew it."""


def renew(kit: Path, new_key: bool = False) -> Path:
    """On the provider's machine: a request to renew its certificate, for the same key or for a new one. The kit stays
    as it is until the certificate comes; a new key signs from the next time that the provider joins."""
    loaded = load_kit(kit)
    present = pki.load_key(loaded.folder / "startup" / "client.key")
    held = kit_certificate(loaded.folder)
    if pki.ended(held):
        raise BazaarError("the certificate has ended: ask the operator for an invitation, and make a new kit from it")
    key = present
    if new_key:
        key = pki.new_key()
        make_folder(loaded.folder / PENDING.parent)
        write_whole(loaded.folder / PENDING, pki.key_pem(key), PRIVATE)
    asked = pki.new_request(key, loaded.provider)
    path = loaded.folder / f"{loaded.provider}.renewal.json"
    made = {"kind": "renewal", "provider": loaded.provider, "request": asked}
    write_json(path, {**made, "proof": pki.prove(present, loaded.market, loaded.provider, asked)})
    return path


def kit_warning(folder: Path) -> str:
    """What a provider is told before its certificate ends, or nothing."""
    return _ending("the certificate", kit_certificate(folder), f"`bazaar provider request {folder.name}`")


def renew_server(
    folder: Path, ca: Path | None = None, passphrase: Passphrase = from_environment, stolen: bool = False
) -> int:
    """A new key and certificate for the server, for so many days; one that is up takes them for new connections. A
    provider that has taken the list refuses the one before; `stolen` is the reason that the list gives."""
    market = operator_folder(folder)
    authority = market.authority(ca, passphrase)
    before = {held.serial_number for held in (*issued(market.folder, market.identity), server_certificate(folder))}
    earlier = (revocations.revoke if stolen else revocations.supersede)(before)
    return pki.days_left(certify_server(market, authority, earlier))


def server_certificate(folder: Path) -> x509.Certificate:
    startup = operator_folder(folder).server / "startup"
    otherwise = f"the server's certificate in {startup} cannot be read: put it back from a backup"
    return pki.read_certificate(startup / "server.crt", otherwise)


def revoke_certificates(
    folder: Path, provider: str, ca: Path | None = None, passphrase: Passphrase = from_environment
) -> None:
    """Put every certificate of a provider that is shut out on the revocation list. This needs the authority's key."""
    market = operator_folder(folder)
    serials = [certificate.serial_number for certificate in issued(market.folder, provider)]
    if serials:
        revocations.add(market.folder, market.authority(ca, passphrase), revocations.revoke(serials))


def take_list(kit: Path, revoked: Path) -> None:
    """On the provider's machine: take the market's revocation list, unless it is not its own or an older one."""
    startup = load_kit(kit).folder / "startup"
    authority = pki.load_certificate((startup / "rootCA.pem").read_text())
    revocations.take(revoked, startup / REVOKED, authority)


def ready(folder: Path) -> None:
    """Refuse to start a server that no provider would take."""
    certificate, startup = server_certificate(folder), operator_folder(folder).server / "startup"
    if pki.ended(certificate):
        raise BazaarError("the server's certificate has ended: run `bazaar federation sign --server`, then start it")
    if pki.load_key(startup / "server.key").public_key() != certificate.public_key():
        raise BazaarError(
            "the server's key and certificate do not belong together: run `bazaar federation sign --server`"
        )


def warnings(folder: Path) -> list[str]:
    """What the operator is told: certificates that end soon, and a revocation list that lacks somebody."""
    market = operator_folder(folder)
    found = [_ending("the server's certificate", server_certificate(folder), "`bazaar federation sign --server`")]
    found.append(_ending("the authority's certificate", certificate_of(market.folder), "a new market with new kits"))
    for name in members(folder):
        if (held := current(market.folder, name)) is not None:
            found.append(_ending(f"the certificate of {name}", held, "its `bazaar provider request KIT`"))
    if not (market.folder / "ca" / REVOKED).exists():
        found.append(
            "the market has no revocation list: run `bazaar federation sign --server`, then restart the server"
        )
    listed = revocations.in_force(market.folder / "ca" / REVOKED)
    for name in sorted(revoked(folder)):
        if {certificate.serial_number for certificate in issued(market.folder, name)} - listed:
            found.append(
                f"{name} is shut out by name, but its certificate is not on the revocation list: run "
                f"`bazaar federation revoke {name} --ca FOLDER` with the authority's key"
            )
    return [text for text in found if text]


def _ending(what: str, certificate: x509.Certificate, remedy: str) -> str:
    left = pki.days_left(certificate)
    if left > SOON:
        return ""
    return f"{what} {f'ends in {left} days' if left >= 0 else 'has ended'}: renew it with {remedy}"
