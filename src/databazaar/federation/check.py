"""What a provider can find out before anything is at stake: name, port, certificates, clock."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from databazaar.errors import BazaarError
from databazaar.federation.enrolment import Kit, kit_certificate, load_kit
from databazaar.federation.frames import WireError, decode_frame
from databazaar.federation.pki import days_left, ended
from databazaar.federation.records import SCHEMA
from databazaar.federation.renewal import kit_warning
from databazaar.federation.tls import open_channel
from databazaar.federation.wire import SERVICE, grpc
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
    found = [_try("key", _key, kit), _try("certificate", _certificate, kit), _try("name", _resolve, kit)]
    if found[-1].ok:
        time: list[str] = []
        found.append(_try("connection", lambda k: _connect(k, timeout, time), kit))
        if found[-1].ok:
            found.append(_try("clock", lambda k: _clock(time[0]), kit))
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
    from databazaar.federation.accepted_schemas import read_schema
    from databazaar.federation.table import Table

    source = Table(data)
    table = source.frame
    refuse_small_table(len(table), str(data))
    try:
        schema = read_schema(kit.folder / SCHEMA)
    except BazaarError:
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


def _resolve(kit: Kit) -> str:
    try:
        found = socket.getaddrinfo(kit.host, kit.port, type=socket.SOCK_STREAM)
    except OSError:
        raise BazaarError(f"the name {kit.host} does not resolve: check your DNS, or ask the operator") from None
    return f"{kit.host} is {found[0][4][0]}"


def _connect(kit: Kit, timeout: float, time: list[str]) -> str:
    with open_channel(kit, timeout) as channel:
        try:
            said = decode_frame(channel.unary_unary(f"/{SERVICE}/Hello")(b"", timeout=timeout))[0]
        except (grpc.RpcError, WireError):
            raise BazaarError(
                "the server does not take this kit's certificate (it may be revoked): ask the operator for a new "
                "invitation"
            ) from None
    time.append(str(said.get("time")))
    return f"{kit.market}'s server answers, and each side takes the other's certificate"


def _clock(time: str) -> str:
    apart = abs((dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(time)).total_seconds())
    if apart > _SKEW:
        raise BazaarError(f"this clock and the server's are {apart:.0f} s apart: set this machine's clock")
    return f"this clock and the server's are within {apart + 1:.0f} s"
