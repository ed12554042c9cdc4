"""What somebody with full access to a ledger's database can do to it."""

from __future__ import annotations

from collections.abc import Iterable

from databazaar.canonical import GENESIS
from databazaar.ledger import Entry


def reseal(entries: Iterable[Entry]) -> list[Entry]:
    """Numbers and hashes everything anew."""
    head, sealed = GENESIS, []
    for seq, entry in enumerate(entries):
        sealed.append(entry._replace(seq=seq).sealed(head))
        head = sealed[-1].hash
    return sealed
