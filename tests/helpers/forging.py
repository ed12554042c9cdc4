"""What somebody with full access to a ledger's database can do to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from databazaar.ledger import Entry
from databazaar.ledger.chain import GENESIS


def reseal(entries: Iterable[Entry]) -> list[Entry]:
    """Numbers and hashes everything anew."""
    head, sealed = GENESIS, []
    for seq, entry in enumerate(entries):
        sealed.append(replace(entry, seq=seq).sealed(head))
        head = sealed[-1].hash
    return sealed
