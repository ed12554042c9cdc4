"""The market's revocation list, `crl.pem`: serial numbers of certificates that count no more, signed by its authority.

A provider's certificate that was renewed stays good for some days more, so that its owner can put the new one in place:
its entry is dated by the day on which it begins to count. OpenSSL, by which providers check the server, takes every
entry as counting, so a server's earlier certificate counts no more as soon as a provider has the list.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from databazaar.errors import BazaarError
from databazaar.federation.enrolment_files import PRIVATE, read_small, stamps
from databazaar.federation.pki import Authority
from databazaar.files import alone, write_whole

REVOKED = "crl.pem"
"""The list's file, beside the authority's certificate."""
GRACE = dt.timedelta(days=7)
"""How long a renewed certificate stays good."""
REVOKED_NAMES = "disabled_clients.json"
"""The file with the names that are shut out, in the server's folder."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Revocation:
    """One certificate that counts no more: from a day on where it was renewed; always, whatever the clock was, where
    it was revoked."""

    serial: int
    since: dt.datetime
    superseded: bool


def read(path: Path, authority: x509.Certificate | None = None) -> list[Revocation]:
    """All entries, those of days to come too, if this authority signed them."""
    found = []
    for entry in _load(path, authority):
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
        found.append(Revocation(entry.serial_number, entry.revocation_date_utc, reason == x509.ReasonFlags.superseded))
    return found


def in_force(path: Path, superseded: bool = True) -> set[int]:
    """The serial numbers that are revoked now; without `superseded`, not those that were merely renewed."""
    entries, now = read(path) if path.exists() else [], _now()
    return {entry.serial for entry in entries if not entry.superseded or (superseded and entry.since <= now)}


def add(folder: Path, authority: Authority, new: Iterable[Revocation] = ()) -> None:
    """Put entries on the list of the market in `folder`, signed anew, where its server looks too."""
    kept = folder / "ca" / REVOKED
    with alone(folder / "ca" / "lock"):
        known = read(kept, authority.certificate) if kept.exists() else []
        number = _number(kept, authority.certificate) + 1 if kept.exists() else 1
        # One entry for each serial number: that it was revoked, or the first time that it was renewed.
        merged: dict[int, Revocation] = {}
        for entry in sorted([*known, *new], key=lambda entry: (entry.superseded, entry.since)):
            merged.setdefault(entry.serial, entry)
        signed = _sign(authority, list(merged.values()), number)
        for path in (kept, folder / "server" / "startup" / REVOKED):
            write_whole(path, signed, PRIVATE)


def take(sent: Path, kept: Path, authority: x509.Certificate) -> None:
    """Put a list that was sent in the place of the one that is kept. An older one would bring back what is revoked."""
    if _number(sent, authority) < (_number(kept, authority) if kept.exists() else 0):
        raise BazaarError(f"{sent} is older than the list that is there: ask the operator for the latest")
    write_whole(kept, read_small(sent), PRIVATE)


def supersede(serials: Iterable[int]) -> list[Revocation]:
    """Entries that begin to count at the midnight after the days of grace."""
    end = (_now() + GRACE).replace(hour=0, minute=0, second=0) + dt.timedelta(days=1)
    return [Revocation(serial, end, superseded=True) for serial in serials]


def revoke(serials: Iterable[int]) -> list[Revocation]:
    """Entries that count at once."""
    return [Revocation(serial, _now(), superseded=False) for serial in serials]


def _now() -> dt.datetime:
    """Lists know no fractions of a second."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _load(path: Path, authority: x509.Certificate | None) -> x509.CertificateRevocationList:
    try:
        found = x509.load_pem_x509_crl(read_small(path))
        if authority is None or found.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
            return found
    except (OSError, ValueError, TypeError, BazaarError):
        pass
    raise BazaarError(f"{path} is not this market's revocation list: get it from the operator, or from a backup")


def _number(path: Path, authority: x509.Certificate) -> int:
    """Lists are numbered, so that an older one is told from a newer."""
    return _load(path, authority).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def _sign(authority: Authority, entries: list[Revocation], number: int) -> bytes:
    """The list is dated like the authority, so that it counts whatever the clock does after a revocation; and it does
    not run out before the authority does, whose key may be where nobody can renew a list every week."""
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(authority.certificate.not_valid_before_utc)
        .next_update(authority.certificate.not_valid_after_utc)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(issuer, critical=False)
    )
    for entry in entries:
        reason = x509.ReasonFlags.superseded if entry.superseded else x509.ReasonFlags.privilege_withdrawn
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(entry.serial)
            .revocation_date(entry.since)
            .add_extension(x509.CRLReason(reason), critical=False)
            .build()
        )
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def revoked_names(path: Path) -> set[str]:
    return set(json.loads(path.read_text())["disabled_clients"]) if path.exists() else set()


class Revoked:
    """Who is shut out, by the two files that say so; both are read again when they change, and every minute, because
    an entry of the list may begin to count on a later day."""

    def __init__(self, server: Path) -> None:
        self._names, self._list = server / REVOKED_NAMES, server / "startup" / REVOKED
        self._seen: object = None
        self._found: tuple[set[str], set[int], set[int]] | None = None

    def why(self, name: str, serial: int, connected: bool = False) -> str:
        """Why this certificate counts no more, or nothing. Without a list that can be read, nobody is let in. Who is
        connected stays so with a certificate that was merely renewed."""
        if (seen := (stamps(self._names, self._list), int(time.time()) // 60)) != self._seen:
            self._found = self._read()
            self._seen = seen
        if self._found is None:
            return "the server has no revocation list that can be read"
        if name in self._found[0]:
            return "the name is revoked"
        return "the certificate is revoked" if serial in self._found[2 if connected else 1] else ""

    def _read(self) -> tuple[set[str], set[int], set[int]] | None:
        try:
            if not self._list.exists():
                raise BazaarError(f"{self._list} is missing: run `bazaar federation sign --server`")
            names = revoked_names(self._names)
            return names, in_force(self._list), in_force(self._list, superseded=False)
        except (BazaarError, OSError, ValueError) as reason:
            log.error("nobody is let in: %s", reason)
            return None
