"""The market's revocation list, `crl.pem`: serial numbers of certificates that count no more, signed by its authority.

A certificate that was renewed stays good for some days more, so that its owner can put the new one in place. The
authority's key may be far away by then, so the lists of the days to come are signed in advance and stand in the same
file: TLS takes the latest whose day has come. The last one holds all entries.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from databazaar.errors import BazaarError
from databazaar.federation.authority import Authority
from databazaar.federation.enrolment_files import read_small
from databazaar.federation.private_files import PRIVATE
from databazaar.files import alone, write_whole

REVOKED = "crl.pem"
"""The list's file, beside the authority's certificate."""
GRACE = dt.timedelta(days=7)
"""How long a renewed certificate stays good."""
_BLOCK = re.compile(rb"-----BEGIN X509 CRL-----[^-]*-----END X509 CRL-----")


@dataclass(frozen=True)
class Revocation:
    """One certificate that counts no more, and since when."""

    serial: int
    since: dt.datetime
    superseded: bool

    def counts(self, day: dt.datetime) -> bool:
        """One that was renewed counts from its day on; one that was revoked always, whatever the clock was."""
        return not self.superseded or self.since <= day


def read(path: Path, authority: x509.Certificate) -> list[Revocation]:
    """All entries, those of days to come too, if this authority signed them."""
    return _entries(_load(path, authority)[-1:])


def in_force(path: Path, superseded: bool = True) -> set[int]:
    """The serial numbers that are revoked now, found as TLS does; none where there is no file. Without `superseded`,
    those alone that were not merely renewed."""
    begun = [found for found in _load(path) if found.last_update_utc <= _now()] if path.exists() else []
    return {entry.serial for entry in _entries(begun[-1:]) if superseded or not entry.superseded}


def add(folder: Path, authority: Authority, new: Iterable[Revocation] = ()) -> None:
    """Put entries on the list of the market in `folder`, signed anew, where its server looks too."""
    kept = folder / "ca" / REVOKED
    with alone(folder / "ca" / "lock"):
        known = read(kept, authority.certificate) if kept.exists() else []
        number = _number(kept, authority.certificate) + 1 if kept.exists() else 1
        signed = _sign_all(authority, _merge(known, new), number)
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


def _merge(known: Iterable[Revocation], new: Iterable[Revocation]) -> list[Revocation]:
    """One entry for each serial number: that it was revoked, or the first time that it was renewed."""
    merged: dict[int, Revocation] = {}
    for entry in sorted([*known, *new], key=lambda entry: (entry.superseded, entry.since)):
        merged.setdefault(entry.serial, entry)
    return list(merged.values())


def _now() -> dt.datetime:
    """Lists know no fractions of a second."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _load(path: Path, authority: x509.Certificate | None = None) -> list[x509.CertificateRevocationList]:
    broken = f"{path} is not this market's revocation list: get it from the operator, or from a backup"
    try:
        lists = [x509.load_pem_x509_crl(block) for block in _BLOCK.findall(read_small(path))]
        signed = authority is None or all(found.is_signature_valid(authority.public_key()) for found in lists)  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError):
        raise BazaarError(broken) from None
    if not lists or not signed:
        raise BazaarError(broken)
    return lists


def _entries(lists: list[x509.CertificateRevocationList]) -> list[Revocation]:
    found = []
    for entry in (entry for revoked in lists for entry in revoked):
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
        found.append(Revocation(entry.serial_number, entry.revocation_date_utc, reason == x509.ReasonFlags.superseded))
    return found


def _sign_all(authority: Authority, entries: list[Revocation], number: int) -> bytes:
    """The list of today, and one for each day on which entries begin to count.

    Today's is dated like the authority, so that it counts whatever the clock does after a revocation.
    """
    now, held = _now(), authority.certificate
    days = sorted({e.since for e in entries if not e.counts(now) and e.since < held.not_valid_after_utc})
    starts = [(held.not_valid_before_utc, now), *((day, day) for day in days)]
    return b"".join(
        _sign(authority, [entry for entry in entries if entry.counts(day)], start, number + place)
        for place, (start, day) in enumerate(starts)
    )


def _number(path: Path, authority: x509.Certificate) -> int:
    """Lists are numbered, so that an older one is told from a newer: the highest number in the file."""
    return max(
        found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number for found in _load(path, authority)
    )


def _sign(authority: Authority, entries: list[Revocation], start: dt.datetime, number: int) -> bytes:
    """It never runs out before the authority does: its key may be where nobody can renew a list every week."""
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(start)
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
