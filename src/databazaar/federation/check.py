"""What a provider can find out before anything is at stake: name, port, certificates, clock, policy."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from databazaar.errors import BazaarError
from databazaar.federation.kits import PROVIDER_COMPONENT
from databazaar.federation.onboarding import Kit, load_kit
from databazaar.federation.pki import common_name
from databazaar.federation.records import SCHEMA

_SKEW = 300.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: is it well, and what is there to say of it."""

    what: str
    ok: bool
    says: str


def check(folder: Path, timeout: float = 5.0) -> list[Finding]:
    """Look at everything in order; what cannot be looked at because of an earlier fault is left out."""
    kit = load_kit(folder)
    found = [_try("key", _key, kit), _try("certificate", _certificate, kit), _try("policy", _policy, kit)]
    found.append(_try("name", _resolve, kit))
    if found[-1].ok:
        date: list[str] = []
        found.append(_try("connection", lambda k: _handshake(k, timeout, date), kit))
        if found[-1].ok and date:
            found.append(_try("clock", lambda k: _clock(date[0]), kit))
    return found


def check_data(folder: Path, data: Path) -> Finding:
    """The provider's file, read as for an answer: by the schema that the market last asked with, if it has asked."""
    return _try("data", lambda kit: _data(kit, data), load_kit(folder))


def _try(what: str, look: Callable[[Kit], str], kit: Kit) -> Finding:
    try:
        return Finding(what, True, look(kit))
    except BazaarError as error:
        return Finding(what, False, str(error))


def _data(kit: Kit, data: Path) -> str:
    from databazaar.data.columns import as_numbers, kind_of
    from databazaar.data.schema_message import SchemaMessage
    from databazaar.data.tables import read_table
    from databazaar.federation.table import Table

    table = read_table(data)
    try:
        schema = SchemaMessage.model_validate_json((kit.folder / SCHEMA).read_bytes())
    except (OSError, ValueError):
        for name in table.columns:
            if kind_of(table[name]) == "number":
                as_numbers(table[name], str(data), "numbers were expected")
        shown = f"{len(table)} rows with {', '.join(map(str, table.columns))}"
        return f"{shown}; the market has not asked yet, so whether they fit it is not known"
    rows = len(Table(data).encoded(schema)[0])
    return f"{rows} of {len(table)} rows fit what the market asked for last, with {schema.target!r} as the target"


def _key(kit: Kit) -> str:
    path = kit.folder / "startup" / "client.key"
    if path.stat().st_mode & 0o077:
        raise BazaarError(f"others can read the private key: run `chmod 600 {path}`")
    return "only you can read the private key"


def _certificate(kit: Kit) -> str:
    certificate = x509.load_pem_x509_certificate((kit.folder / "startup" / "client.crt").read_bytes())
    left = (certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)).days
    if left < 0:
        raise BazaarError("the certificate has expired: ask the operator for an invitation under a new name")
    return f"{kit.provider} of {kit.market}, valid for {left} days more"


def _policy(kit: Kit) -> str:
    local = kit.folder / "local"
    remedy = "put the certificate into the kit again to restore it"
    try:
        rights = json.loads((local / "authorization.json").read_text())["permissions"]
        resources = json.loads((local / "resources.json").read_text())
        components = [part["path"] for part in resources["components"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise BazaarError(f"the policy in {local} cannot be read: {remedy}") from None
    if any(right != "none" for role in rights.values() for right in role.values()):
        raise BazaarError(f"{local / 'authorization.json'} grants rights to the server: {remedy}")
    if components != [PROVIDER_COMPONENT] or resources.get("class_list_enforcement_mode") != "enforce":
        raise BazaarError(f"{local / 'resources.json'} admits code other than ours: {remedy}")
    return "no job, no command and no code from the server is accepted"


def _resolve(kit: Kit) -> str:
    try:
        found = socket.getaddrinfo(kit.host, kit.port, type=socket.SOCK_STREAM)
    except OSError:
        raise BazaarError(f"the name {kit.host} does not resolve: check your DNS, or ask the operator") from None
    return f"{kit.host} is {found[0][4][0]}"


def _handshake(kit: Kit, timeout: float, date: list[str]) -> str:
    startup = kit.folder / "startup"
    identity = json.loads((startup / "fed_client.json").read_text())["servers"][0]["identity"]
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    try:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    except (OSError, ssl.SSLError):
        raise BazaarError(
            "client.crt and client.key do not belong together: make a new kit from an invitation of the operator"
        ) from None
    try:
        plain = socket.create_connection((kit.host, kit.port), timeout=timeout)
    except OSError:
        raise BazaarError(
            f"nothing answers at {kit.host}:{kit.port}: ask the operator if the server is up, "
            "and your network's keeper if you are let out to that port"
        ) from None
    try:
        with plain, context.wrap_socket(plain, server_hostname=kit.host) as secure:
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {kit.host}\r\nConnection: close\r\n\r\n".encode())
            answer = secure.recv(65536)
            certificate = x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"")
    except ssl.SSLCertVerificationError as error:
        raise BazaarError(
            f"the server at {kit.host} is not the market's ({error.verify_message}): ask the operator"
        ) from None
    except (OSError, ValueError):
        answer = b""
    if not answer:
        raise BazaarError("the server does not take this kit's certificate: ask the operator for a new invitation")
    if common_name(certificate.subject) != identity:
        raise BazaarError(f"the server at {kit.host} is not {identity}: ask the operator")
    date += re.findall(r"(?mi)^Date: (.*?)\r?$", answer.decode("latin-1"))
    return f"{identity} answers, and each side takes the other's certificate"


def _clock(date: str) -> str:
    server = email.utils.parsedate_to_datetime(date)
    apart = abs((dt.datetime.now(dt.UTC) - server).total_seconds())
    if apart > _SKEW:
        raise BazaarError(f"this clock and the server's are {apart:.0f} s apart: set this machine's clock")
    return f"this clock and the server's are within {apart + 1:.0f} s"
