"""How a provider becomes part of a market. Its private key is made on its own machine and stays there.

operator   init_market(folder, …)          the market's authority and its server's kit
operator   invite(folder, name)            → invitation file, to be sent to the provider in private
provider   request(invitation, kit)        → request file: a public key, signed with the invitation's secret
operator   sign(folder, request file)      → certificate file
provider   complete(kit, certificate file) the kit can connect

`server.revoke` shuts a provider out again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation import pki
from databazaar.federation.kits import PRIVATE, write_json, write_provider_kit, write_server_kit
from databazaar.files import write_whole

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,46}[a-z0-9])?")
_RESERVED = {"server", "admin", "relay", "market", "localhost"}
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class OperatorFolder:
    """A market's folder on the operator's machine."""

    folder: Path
    name: str
    host: str
    port: int

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def identity(self) -> str:
        return f"{self.name}.server"


@dataclass(frozen=True)
class Kit:
    """A provider's folder on its own machine, complete and able to connect."""

    folder: Path
    market: str
    provider: str
    host: str
    port: int


def init_market(folder: Path, name: str, host: str, port: int) -> OperatorFolder:
    """Make the market's authority and its server's kit in a new folder."""
    _check_name(name, "market")
    if not _HOST.fullmatch(host):
        raise BazaarError(f"{host!r} is not a host name: give the name or address that providers will dial")
    if not 0 < port < 65536:
        raise BazaarError(f"port {port} is not a port: give a number from 1 to 65535")
    if (folder / "market.json").exists():
        raise BazaarError(f"{folder} already holds a market: give a new folder, or use the one that is there")
    market = OperatorFolder(folder.resolve(), name, host, port)
    for sub in ("ca", "invitations", "certificates"):
        (market.folder / sub).mkdir(mode=0o700, parents=True, exist_ok=True)
    market.folder.chmod(0o700)
    authority_key, authority = pki.new_authority(f"{name}.ca")
    write_whole(market.folder / "ca" / "ca.key", pki.key_pem(authority_key), PRIVATE)
    write_whole(market.folder / "ca" / "ca.pem", pki.pem(authority).encode(), PRIVATE)
    key = pki.new_key()
    hosts = [host, *(h for h in ("localhost", "127.0.0.1") if h != host)]
    certificate = pki.issue(authority_key, authority, market.identity, key.public_key(), hosts)
    write_server_kit(
        market.server,
        name,
        market.identity,
        host,
        port,
        pki.pem(authority),
        pki.pem(certificate),
        pki.key_pem(key),
    )
    write_json(market.folder / "market.json", {"name": name, "host": host, "port": port})
    return market


def operator_folder(folder: Path) -> OperatorFolder:
    found = _read(folder / "market.json", f"{folder} holds no market: make one with `bazaar federation init`")
    return OperatorFolder(folder.resolve(), _text(found, "name"), _text(found, "host"), int(found["port"]))


def invite(folder: Path, provider: str) -> Path:
    """An invitation for one provider. It carries a secret: send it where only that provider reads."""
    market = operator_folder(folder)
    _check_name(provider, "provider")
    if provider in revoked(folder):
        raise BazaarError(f"{provider} was revoked and its name stays shut out: invite it under a new name")
    if (market.folder / "certificates" / f"{provider}.json").exists():
        raise BazaarError(f"{provider} already has a certificate: revoke it first, then invite under a new name")
    invitation = {
        "kind": "invitation",
        "market": market.name,
        "provider": provider,
        "host": market.host,
        "port": market.port,
        "identity": market.identity,
        "authority": (market.folder / "ca" / "ca.pem").read_text(),
        "secret": secrets.token_hex(32),
    }
    path = market.folder / "invitations" / f"{provider}.json"
    write_json(path, invitation)
    return path


def request(invitation: Path, kit: Path) -> Path:
    """On the provider's machine: make its key and the request to send back. The key stays in `kit`."""
    invited = _read(invitation, f"{invitation} is not an invitation: ask the operator for one", "invitation")
    provider = _text(invited, "provider")
    _check_name(provider, "provider")
    secret = _text(invited, "secret")
    if (kit / "startup" / "client.key").exists():
        raise BazaarError(f"{kit} already holds a key: give a new folder, or send the request that is in it")
    (kit / "startup").mkdir(mode=0o700, parents=True, exist_ok=True)
    kit.chmod(0o700)
    key = pki.new_key()
    write_whole(kit / "startup" / "client.key", pki.key_pem(key), PRIVATE)
    asked = pki.new_request(key, provider)
    proof = _proof(secret, asked)
    write_json(kit / "invitation.json", {k: v for k, v in invited.items() if k != "secret"})
    path = kit / f"{provider}.request.json"
    write_json(path, {"kind": "request", "provider": provider, "request": asked, "proof": proof})
    return path


def sign(folder: Path, request_file: Path) -> Path:
    """Issue the certificate of a provider that was invited; an invitation serves once."""
    market = operator_folder(folder)
    sent = _read(request_file, f"{request_file} is not a certificate request: ask the provider for it", "request")
    provider = _text(sent, "provider")
    _check_name(provider, "provider")
    invitation = market.folder / "invitations" / f"{provider}.json"
    invited = _read(invitation, f"{provider} has no open invitation: run `bazaar federation invite {provider}`")
    asked = _text(sent, "request")
    if not hmac.compare_digest(_proof(_text(invited, "secret"), asked), _text(sent, "proof")):
        raise BazaarError(f"the request was not made from {provider}'s invitation: ask the provider to make it again")
    if provider in revoked(folder):
        raise BazaarError(f"{provider} was revoked and its name stays shut out: invite it under a new name")
    public_key = pki.read_request(asked, provider)
    authority = x509.load_pem_x509_certificate((market.folder / "ca" / "ca.pem").read_bytes())
    certificate = pki.issue(pki.load_key(market.folder / "ca" / "ca.key"), authority, provider, public_key)
    path = market.folder / "certificates" / f"{provider}.json"
    write_json(path, {"kind": "certificate", "provider": provider, "certificate": pki.pem(certificate)})
    invitation.unlink()
    return path


def complete(kit: Path, certificate_file: Path) -> Kit:
    """On the provider's machine: put the certificate into the kit, if it is this kit's own."""
    invited = _read(kit / "invitation.json", f"{kit} is not a kit: start from an invitation", "invitation")
    sent = _read(certificate_file, f"{certificate_file} is not a certificate: ask the operator for it", "certificate")
    provider, authority = _text(invited, "provider"), _text(invited, "authority")
    certificate = _text(sent, "certificate")
    pki.check_certificate(certificate, authority, provider, pki.load_key(kit / "startup" / "client.key"))
    market, host, port = _text(invited, "market"), _text(invited, "host"), int(invited["port"])
    write_provider_kit(kit.resolve(), market, _text(invited, "identity"), host, port, authority, certificate)
    return load_kit(kit)


def load_kit(folder: Path) -> Kit:
    missing = f"{folder} is not a complete kit: put the operator's certificate into it first"
    invited = _read(folder / "invitation.json", missing, "invitation")
    for file in ("client.key", "client.crt", "rootCA.pem", "fed_client.json"):
        if not (folder / "startup" / file).exists():
            raise BazaarError(missing)
    return Kit(
        folder.resolve(), _text(invited, "market"), _text(invited, "provider"), _text(invited, "host"),
        int(invited["port"]),
    )  # fmt: skip


def members(folder: Path) -> list[str]:
    """Every provider that holds a certificate and is not revoked."""
    shut = revoked(folder)
    issued = (operator_folder(folder).folder / "certificates").glob("*.json")
    return sorted(path.stem for path in issued if path.stem not in shut)


def revoked(folder: Path) -> set[str]:
    """The names shut out, read from the file that FLARE's server loads when it starts."""
    path = operator_folder(folder).server / "disabled_clients.json"
    return set(json.loads(path.read_text())["disabled_clients"]) if path.exists() else set()


def record_revocation(folder: Path, provider: str) -> None:
    """Write the name where FLARE's server looks. `server.revoke` also tells a server that is up."""
    market = operator_folder(folder)
    _check_name(provider, "provider")
    invitation = market.folder / "invitations" / f"{provider}.json"
    if not invitation.exists() and not (market.folder / "certificates" / f"{provider}.json").exists():
        raise BazaarError(f"{market.name} has no provider {provider}: its providers are {_list(members(folder))}")
    invitation.unlink(missing_ok=True)
    names = sorted(revoked(folder) | {provider})
    write_json(market.server / "disabled_clients.json", {"disabled_clients": names})


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise BazaarError(
            f"{name!r} cannot be the name of a {what}: use up to 48 small letters, digits, '-' and '_', "
            f"and none of {', '.join(sorted(_RESERVED))}"
        )


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none so far"


def _proof(secret: str, text: str) -> str:
    return hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).hexdigest()


def _read(path: Path, otherwise: str, kind: str | None = None) -> dict[str, Any]:
    try:
        if path.stat().st_size > 1_000_000:
            raise ValueError
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        raise BazaarError(otherwise) from None
    if not isinstance(found, dict) or (kind is not None and found.get("kind") != kind):
        raise BazaarError(otherwise)
    return found


def _text(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise BazaarError(f"the file lacks {key!r}: ask the sender for it again")
    return value
