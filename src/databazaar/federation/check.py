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

from databazaar.errors import BazaarError
from databazaar.federation.kits import PROVIDER_COMPONENT
from databazaar.federation.onboarding import Kit, load_kit
from databazaar.federation.pki import days_left, ended
from databazaar.federation.records import SCHEMA
from databazaar.federation.renewal import kit_certificate, kit_warning
from databazaar.federation.tls import client_context
from databazaar.learning.asked_rows import refuse_small_table

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
    from databazaar.federation.table import Table

    source = Table(data)
    table = source.frame
    refuse_small_table(len(table), str(data))
    try:
        schema = SchemaMessage.model_validate_json((kit.folder / SCHEMA).read_bytes())
    except (OSError, ValueError):
        for name in table.columns:
            if kind_of(table[name]) == "number":
                as_numbers(table[name], str(data), "numbers were expected")
        shown = f"{len(table)} rows with {', '.join(map(str, table.columns))}"
        return f"{shown}; the market has not asked yet, so whether they fit it is not known"
    rows = len(source.encoded(schema)[0])
    refuse_small_table(rows, str(data))
    return f"{rows} of {len(table)} rows fit what the market asked for last, with {schema.target!r} as the target"


def _key(kit: Kit) -> str:
    path = kit.folder / "startup" / "client.key"
    if path.stat().st_mode & 0o077:
        raise BazaarError(f"others can read the private key: run `chmod 600 {path}`")
    return "only you can read the private key"


def _certificate(kit: Kit) -> str:
    certificate = kit_certificate(kit.folder)
    if ended(certificate):
        raise BazaarError("the certificate has expired: ask the operator for a new invitation, and make a new kit")
    warning = kit_warning(kit.folder)
    return f"{kit.provider} of {kit.market}, valid for {days_left(certificate)} days more{warning and '; ' + warning}"


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


def stranger(kit: Kit, timeout: float = 5.0) -> str:
    """Why whoever answers at the market's address is not its server; nothing if it is, or if nobody answers."""
    try:
        context = _context(kit)
        with socket.create_connection((kit.host, kit.port), timeout=timeout) as plain:
            _secure(kit, context, plain).close()
    except _StrangerError as error:
        return str(error)
    except (BazaarError, OSError, ValueError):
        return ""  # what else there is to say, `check` says, and FLARE tries again
    return ""


class _StrangerError(BazaarError):
    """Somebody answers in the server's place."""


def _context(kit: Kit) -> ssl.SSLContext:
    """The same as FLARE gets: the market's own authority, its server's name, the host that is dialled."""
    startup = kit.folder / "startup"
    try:
        identity = str(json.loads((startup / "fed_client.json").read_bytes())["servers"][0]["identity"])
        return client_context(startup / "client.crt", startup / "client.key", startup / "rootCA.pem", identity)
    except (OSError, ssl.SSLError):
        raise BazaarError(
            "client.crt and client.key do not belong together: put the operator's certificate into the kit again, or "
            "make a new kit from an invitation of the operator"
        ) from None
    except (ValueError, LookupError, TypeError):
        raise BazaarError("the kit's fed_client.json cannot be read: put the certificate into the kit again") from None


def _secure(kit: Kit, context: ssl.SSLContext, plain: socket.socket) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(plain, server_hostname=kit.host)
    except ssl.SSLCertVerificationError as error:
        raise _StrangerError(
            f"the server at {kit.host}:{kit.port} is not the market's ({error.verify_message.rstrip('.')}): "
            "ask the operator"
        ) from None


def _handshake(kit: Kit, timeout: float, date: list[str]) -> str:
    context = _context(kit)
    try:
        plain = socket.create_connection((kit.host, kit.port), timeout=timeout)
    except OSError:
        raise BazaarError(
            f"nothing answers at {kit.host}:{kit.port}: ask the operator if the server is up, "
            "and your network's keeper if you are let out to that port"
        ) from None
    try:
        with plain, _secure(kit, context, plain) as secure:
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {kit.host}\r\nConnection: close\r\n\r\n".encode())
            answer = secure.recv(65536)
    except OSError:
        answer = b""
    if not answer:
        raise BazaarError(
            "the server does not take this kit's certificate (it may be revoked): ask the operator for a new invitation"
        )
    date += re.findall(r"(?mi)^Date: (.*?)\r?$", answer.decode("latin-1"))
    return f"{kit.market}'s server answers, and each side takes the other's certificate"


def _clock(date: str) -> str:
    server = email.utils.parsedate_to_datetime(date)
    apart = abs((dt.datetime.now(dt.UTC) - server).total_seconds())
    if apart > _SKEW:
        raise BazaarError(f"this clock and the server's are {apart:.0f} s apart: set this machine's clock")
    return f"this clock and the server's are within {apart + 1:.0f} s"
