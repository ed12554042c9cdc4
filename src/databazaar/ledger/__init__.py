"""Money that can be audited: integer amounts, reserve → post or void, an append-only hash chain."""

from databazaar.ledger.audit import Audit, audit_entries
from databazaar.ledger.book import Book
from databazaar.ledger.chain import Entry
from databazaar.ledger.ledger import Ledger, MemoryStore, Settlement, Snapshot, Store, Terms

__all__ = [
    "Audit",
    "Book",
    "Entry",
    "Ledger",
    "MemoryStore",
    "Settlement",
    "Snapshot",
    "Store",
    "Terms",
    "audit_entries",
]
