"""Money that can be audited: integer amounts, reserve → post or void, an append-only hash chain.

A ledger is read and replayed without torch, data or model.
"""

from databazaar.ledger.accounts import Accounts, Settlement
from databazaar.ledger.audit import Audit
from databazaar.ledger.book import Book
from databazaar.ledger.chain import Entry
from databazaar.ledger.ledger import Ledger
from databazaar.ledger.notary import Due, Notary, audit_entries
from databazaar.ledger.record import Record
from databazaar.ledger.rounds import Access, Round, Rounds
from databazaar.ledger.rulebook import Drawn, RuleBook, Stopped, end_of, status_of
from databazaar.ledger.store import MemoryStore, Snapshot, Store
from databazaar.ledger.terms import Terms

__all__ = [
    "Access",
    "Accounts",
    "Audit",
    "Book",
    "Drawn",
    "Due",
    "Entry",
    "Ledger",
    "MemoryStore",
    "Notary",
    "Record",
    "Round",
    "Rounds",
    "RuleBook",
    "Settlement",
    "Snapshot",
    "Stopped",
    "Store",
    "Terms",
    "audit_entries",
    "end_of",
    "status_of",
]
