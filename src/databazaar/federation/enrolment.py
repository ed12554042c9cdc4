"""How a provider becomes part of a market. Its private key is made on its own machine and stays there.

operator   init_market(folder, …)          the market's authority and its server's certificate
operator   invite(folder, name)            → invitation file, to be sent to the provider in private
provider   request(invitation, kit)        → request file: a public key, signed with the invitation's secret
operator   sign(folder, request file)      → certificate file
provider   complete(kit, certificate file) the kit can connect

Before a certificate ends, `renewal.renew(kit)` makes a request that is signed with its key; then `sign` and `complete`
again. `server.revoke` shuts a provider out.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation import pki, revocations
from databazaar.federation.enrolment_files import (
    HOST,
    NAME,
    PRIVATE,
    RESERVED,
    CertificateFile,
    EnrolmentMarket,
    Invitation,
    KeptInvitation,
    RequestFile,
    make_folder,
    proof,
    read_file,
    sync,
    write_json,
)
from databazaar.federation.pki import Passphrase, certificate_of, current, from_environment, issued, record
from databazaar.files import alone, write_whole

PENDING = Path("renewal") / "client.key"
"""Where a kit keeps the key of a request to renew, until its certificate comes."""
_HOLDS = (
    "{} already has a certificate: let it renew that one with `bazaar provider request KIT`, or revoke it and invite "
    "under a new name"
)


class OperatorFolder(EnrolmentMarket):
    """A market's folder on the operator's machine."""

    folder: Path

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def identity(self) -> str:
        return f"{self.name}.server"

    def authority(self, ca: Path | None, passphrase: Passphrase) -> pki.Authority:
        """The market's authority with its key, which may be in another folder."""
        path = (ca or self.folder / "ca") / pki.KEY
        if not path.is_file():
            where = f"it was put into {self.ca}" if self.ca else "it is not in the market's folder"
            raise BazaarError(
                f"the key of the market's authority is not at {path} ({where}): give its folder with --ca"
            )
        found = pki.Authority(pki.load_key(path, passphrase), certificate_of(self.folder))
        if found.key.public_key() != found.certificate.public_key():
            raise BazaarError(
                f"{path} is the key of another market's authority: give the folder of this one's with --ca"
            )
        return found


def init_market(
    folder: Path, name: str, host: str, port: int, ca: Path | None = None, passphrase: str | None = None
) -> OperatorFolder:
    """Make the market's authority and its server's kit in a new folder. With `ca` the authority's key goes there."""
    _check_name(name, "market")
    if not HOST.fullmatch(host):
        raise BazaarError(f"{host!r} is not a host name: give the name or address that providers will dial")
    if not 0 < port < 65536:
        raise BazaarError(f"port {port} is not a port: give a number from 1 to 65535")
    if (folder / "market.json").exists():
        raise BazaarError(f"{folder} already holds a market: give a new folder, or use the one that is there")
    kept = str(ca.resolve()) if ca else ""
    market = OperatorFolder(folder=folder.resolve(), name=name, host=host, port=port, ca=kept)
    for sub in ("ca", "invitations", "certificates", "issued"):
        make_folder(market.folder / sub)
    market.folder.chmod(0o700)
    authority = pki.make_authority(market.folder, name, ca, passphrase)
    startup = market.server / "startup"
    make_folder(startup)
    write_whole(startup / "rootCA.pem", pki.pem(authority.certificate).encode(), PRIVATE)
    certify_server(market, authority)
    write_json(market.folder / "market.json", market.model_dump(exclude={"folder"}))
    return market


def certify_server(
    market: OperatorFolder, authority: pki.Authority, earlier: Iterable[revocations.Revocation] = ()
) -> x509.Certificate:
    """A new key and certificate for the server; `earlier` ones count no more."""
    key, startup = pki.new_key(), market.server / "startup"
    hosts = dict.fromkeys((market.host, "localhost", "127.0.0.1"))
    certificate = authority.issue(market.identity, key.public_key(), list(hosts))
    record(market.folder, market.identity, certificate)
    write_whole(startup / "server.crt", pki.pem(certificate).encode(), PRIVATE)
    write_whole(startup / "server.key", pki.key_pem(key), PRIVATE)
    revocations.add(market.folder, authority, earlier)
    return certificate


def operator_folder(folder: Path) -> OperatorFolder:
    otherwise = f"{folder} holds no market: make one with `bazaar federation init`"
    found = read_file(folder / "market.json", EnrolmentMarket, otherwise)
    return OperatorFolder(folder=folder.resolve(), **found.model_dump())


def invite(folder: Path, provider: str) -> Path:
    """An invitation for one provider. It carries a secret: send it where only that provider reads."""
    market = operator_folder(folder)
    _check_name(provider, "provider")
    if provider in revoked(folder):
        raise BazaarError(f"{provider} was revoked and its name stays shut out: invite it under a new name")
    if (held := current(market.folder, provider)) is not None and not pki.ended(held):
        raise BazaarError(_HOLDS.format(provider))
    invitation = {
        "kind": "invitation",
        "market": market.name,
        "provider": provider,
        "host": market.host,
        "port": market.port,
        "identity": market.identity,
        "authority": pki.pem(certificate_of(market.folder)),
        "secret": secrets.token_hex(32),
    }
    path = market.folder / "invitations" / f"{provider}.json"
    write_json(path, invitation)
    return path


def sign(folder: Path, request_file: Path, ca: Path | None = None, passphrase: Passphrase = from_environment) -> Path:
    """Issue the certificate of a provider that was invited, once, or that renews its own. The certificate before it
    stays good for some days, so that a running market does not lose the provider."""
    market = operator_folder(folder)
    otherwise = f"{request_file} is not a certificate request: ask the provider for it"
    sent = read_file(request_file, RequestFile, otherwise)
    provider = sent.provider
    if provider in revoked(folder):
        raise BazaarError(f"{provider} was revoked and its name stays shut out: invite it under a new name")
    invitation = market.folder / "invitations" / f"{provider}.json"
    held = current(market.folder, provider)
    if sent.kind == "renewal":
        _check_renewal(market, sent, held)
    else:
        _check_invited(sent, invitation, held)
    public_key = pki.read_request(sent.request, provider)
    path = market.folder / "certificates" / f"{provider}.json"
    if held is None or held.public_key() != public_key or _may_renew(market, sent, held):
        authority = market.authority(ca, passphrase)
        certificate = authority.issue(provider, public_key)
        before = [earlier.serial_number for earlier in issued(market.folder, provider)]
        record(market.folder, provider, certificate)
        revocations.add(market.folder, authority, revocations.supersede(before))
        write_json(path, {"kind": "certificate", "provider": provider, "certificate": pki.pem(certificate)})
    invitation.unlink(missing_ok=True)
    sync(invitation.parent)
    return path


def members(folder: Path) -> list[str]:
    """Every provider that holds a certificate and is not revoked."""
    shut = revoked(folder)
    issued = (operator_folder(folder).folder / "certificates").glob("*.json")
    return sorted(path.stem for path in issued if path.stem not in shut)


def revoked(folder: Path) -> set[str]:
    return revocations.revoked_names(operator_folder(folder).server / revocations.REVOKED_NAMES)


def record_revocation(folder: Path, provider: str) -> None:
    """Write the name where the server looks. `server.revoke` also tells a server that is up."""
    market = operator_folder(folder)
    _check_name(provider, "provider")
    invitation = market.folder / "invitations" / f"{provider}.json"
    if not invitation.exists() and not (market.folder / "certificates" / f"{provider}.json").exists():
        known = ", ".join(members(folder)) or "none so far"
        raise BazaarError(f"{market.name} has no provider {provider}: its providers are {known}")
    invitation.unlink(missing_ok=True)
    with alone(market.folder / "ca" / "lock"):
        names = sorted(revoked(folder) | {provider})
        write_json(market.server / revocations.REVOKED_NAMES, {"disabled_clients": names})


def _check_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name) or name in RESERVED:
        raise BazaarError(
            f"{name[:100]!r} cannot be the name of a {what}: use up to 48 small letters, digits, '-' and '_', "
            f"and none of {', '.join(sorted(RESERVED))}"
        )


def _check_invited(sent: RequestFile, invitation: Path, held: x509.Certificate | None) -> None:
    provider = sent.provider
    otherwise = f"{provider} has no open invitation: run `bazaar federation invite {provider}`"
    invited = read_file(invitation, Invitation, otherwise)
    if held is not None and not pki.ended(held) and held.public_key() != pki.read_request(sent.request, provider):
        raise BazaarError(_HOLDS.format(provider))
    if not hmac.compare_digest(proof(invited.secret, sent.request), sent.proof):
        raise BazaarError(f"the request was not made from {provider}'s invitation: ask the provider to make it again")


def _check_renewal(market: OperatorFolder, sent: RequestFile, held: x509.Certificate | None) -> None:
    provider = sent.provider
    if held is None:
        raise BazaarError(f"{provider} has no certificate to renew: run `bazaar federation invite {provider}`")
    if pki.ended(held):
        raise BazaarError(f"the certificate of {provider} has ended: run `bazaar federation invite {provider}`")
    if not _may_renew(market, sent, held) and pki.read_request(sent.request, provider) != held.public_key():
        raise BazaarError(
            f"the request was not made with {provider}'s present key: have it made with `bazaar provider request`"
        )


def _may_renew(market: OperatorFolder, sent: RequestFile, held: x509.Certificate) -> bool:
    """Signed with the present key. A request whose new key has its certificate already is not, and gets no second."""
    return sent.kind == "renewal" and pki.proves(held, market.name, sent.provider, sent.request, sent.proof)


class Kit(KeptInvitation):
    """A provider's folder on its own machine, complete and able to connect."""

    folder: Path


def request(invitation: Path, kit: Path) -> Path:
    """On the provider's machine: make its key and the request to send back. The key stays in `kit`."""
    invited = read_file(invitation, Invitation, f"{invitation} is not an invitation: ask the operator for one")
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
    invited = read_file(kit / "invitation.json", KeptInvitation, f"{kit} is not a kit: start from an invitation")
    otherwise = f"{certificate_file} is not a certificate: ask the operator for it"
    text = read_file(certificate_file, CertificateFile, otherwise).certificate
    startup, pending = kit / "startup", kit / PENDING
    renewed = pending.exists() and pki.load_certificate(text).public_key() == pki.load_key(pending).public_key()
    pki.check_certificate(
        text, invited.authority, invited.provider, pki.load_key(pending if renewed else startup / "client.key")
    )
    certificate = pki.load_certificate(text)
    try:
        newer = kit_certificate(kit).not_valid_before_utc > certificate.not_valid_before_utc
    except BazaarError:  # there is none yet
        newer = False
    if newer and not renewed:
        raise BazaarError(f"{kit} holds a newer certificate than {certificate_file}: keep it, or ask for a new one")
    authority = pki.pem(pki.load_certificate(invited.authority))
    write_whole(startup / "rootCA.pem", authority.encode(), PRIVATE)
    write_whole(startup / "client.crt", pki.pem(certificate).encode(), PRIVATE)
    if renewed:
        pending.replace(startup / "client.key")
        sync(startup)
        sync(pending.parent)
    return load_kit(kit)


def kit_certificate(folder: Path) -> x509.Certificate:
    otherwise = f"the certificate in {folder} cannot be read: put the operator's in again"
    return pki.read_certificate(folder / "startup" / "client.crt", otherwise)


def load_kit(folder: Path) -> Kit:
    missing = f"{folder} is not a complete kit: put the operator's certificate into it first"
    invited = read_file(folder / "invitation.json", KeptInvitation, missing)
    for file in ("client.key", "client.crt", "rootCA.pem"):
        if not (folder / "startup" / file).exists():
            raise BazaarError(missing)
    return Kit(folder=folder.resolve(), **invited.model_dump())
