"""Money across jobs: one double-entry journal, chained by hash, append-only, with one lock on its head.

Accounts are `cash:SLUG` (an organisation's money at the market), `escrow:JOB`, `earned:SLUG` (a provider's pay), `fees`
(the operator's) and `outside` (the world, which alone may be negative). The market holds no money: it keeps books.
"""

from databazaar.service.journal.auditing import JournalAudit, audit
from databazaar.service.journal.exporting import export, lines
from databazaar.service.journal.posting import JournalError, Transfer, lock, post, post_all
from databazaar.service.journal.reading import (
    Page,
    accounts_of,
    balance,
    cash,
    earned,
    entries,
    escrow,
    statement,
)

__all__ = [
    "JournalAudit",
    "JournalError",
    "Page",
    "Transfer",
    "accounts_of",
    "audit",
    "balance",
    "cash",
    "earned",
    "entries",
    "escrow",
    "export",
    "lines",
    "lock",
    "post",
    "post_all",
    "statement",
]
