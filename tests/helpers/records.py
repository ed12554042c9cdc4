"""What an audit has recorded."""

from __future__ import annotations

from databazaar.ledger import Audit, Record


def record_of(audit: Audit) -> Record:
    assert audit.record is not None
    return audit.record
