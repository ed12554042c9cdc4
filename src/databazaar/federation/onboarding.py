"""How a provider becomes part of a market. Its private key is made on its own machine and stays there.

operator   init_market(folder, …)          the market's authority and its server's kit
operator   invite(folder, name)            → invitation file, to be sent to the provider in private
provider   request(invitation, kit)        → request file: a public key, signed with the invitation's secret
operator   sign(folder, request file)      → certificate file
provider   complete(kit, certificate file) the kit can connect

Before a certificate ends, `renewal.renew(kit)` makes a request that is signed with its key; then `sign` and `complete`
again. `server.revoke` shuts a provider out.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation import pki
from databazaar.federation.authority import issued
from databazaar.federation.kits import PRIVATE, make_folder, take_up, write_json
from databazaar.federation.membership import (
    OperatorFolder,
    init_market,
    invite,
    members,
    operator_folder,
    record_revocation,
    revoked,
    sign,
)
from databazaar.federation.papers import CertificateFile, Invitation, Place, proof, read_paper, read_small
from databazaar.files import write_whole

__all__ = [
    "Kit",
    "OperatorFolder",
    "complete",
    "init_market",
    "invite",
    "issued",
    "load_kit",
    "members",
    "operator_folder",
    "proof",
    "record_revocation",
    "request",
    "revoked",
    "sign",
]
PENDING = Path("renewal") / "client.key"
"""Where a kit keeps the key of a request to renew, until its certificate comes."""


@dataclass(frozen=True)
class Kit:
    """A provider's folder on its own machine, complete and able to connect."""

    folder: Path
    market: str
    provider: str
    host: str
    port: int
    identity: str
    """The name in the certificate of the market's server."""


def request(invitation: Path, kit: Path) -> Path:
    """On the provider's machine: make its key and the request to send back. The key stays in `kit`."""
    invited = read_paper(invitation, Invitation, f"{invitation} is not an invitation: ask the operator for one")
    if invited.identity != f"{invited.market}.server" or not pki.is_authority(invited.authority):
        raise BazaarError(f"{invitation} is not an invitation of a market: ask the operator for a new one")
    if (kit / "startup" / "client.key").exists():
        raise BazaarError(f"{kit} already holds a key: give a new folder, or send the request that is in it")
    for folder in (kit, kit / "startup"):
        make_folder(folder)
    kit.chmod(0o700)
    key = pki.new_key()
    write_whole(kit / "startup" / "client.key", pki.key_pem(key), PRIVATE)
    asked = pki.new_request(key, invited.provider)
    write_json(kit / "invitation.json", invited.model_dump(exclude={"secret"}))
    path = kit / f"{invited.provider}.request.json"
    made = {"kind": "request", "provider": invited.provider, "request": asked}
    write_json(path, {**made, "proof": proof(invited.secret, asked)})
    return path


def complete(kit: Path, certificate_file: Path) -> Kit:
    """On the provider's machine: put the certificate into the kit, if it is this kit's own. A renewed one is taken when
    the provider connects next; a connection that is open stays."""
    invited = read_paper(kit / "invitation.json", Place, f"{kit} is not a kit: start from an invitation")
    otherwise = f"{certificate_file} is not a certificate: ask the operator for it"
    text = read_paper(certificate_file, CertificateFile, otherwise).certificate
    startup, pending = kit / "startup", kit / PENDING
    renewed = pending.exists() and pki.belongs(text, pki.load_key(pending))
    pki.check_certificate(
        text, invited.authority, invited.provider, pki.load_key(pending if renewed else startup / "client.key")
    )
    certificate = pki.load_certificate(text)
    if not renewed and _issued_at(startup / "client.crt", certificate) > certificate.not_valid_before_utc:
        raise BazaarError(f"{kit} holds a newer certificate than {certificate_file}: keep it, or ask for a new one")
    authority = pki.pem(pki.load_certificate(invited.authority))
    write_whole(startup / "rootCA.pem", authority.encode(), PRIVATE)
    write_whole(startup / "client.crt", pki.pem(certificate).encode(), PRIVATE)
    if renewed:
        take_up(pending, startup / "client.key")
    return load_kit(kit)


def _issued_at(path: Path, otherwise: x509.Certificate) -> dt.datetime:
    """When the certificate that is there was issued; where none is, `otherwise`'s time."""
    try:
        return pki.load_certificate(read_small(path).decode("ascii")).not_valid_before_utc
    except (OSError, ValueError, BazaarError):
        return otherwise.not_valid_before_utc


def load_kit(folder: Path) -> Kit:
    missing = f"{folder} is not a complete kit: put the operator's certificate into it first"
    invited = read_paper(folder / "invitation.json", Place, missing)
    for file in ("client.key", "client.crt", "rootCA.pem"):
        if not (folder / "startup" / file).exists():
            raise BazaarError(missing)
    place = invited.market, invited.provider, invited.host, invited.port, invited.identity
    return Kit(folder.resolve(), *place)
