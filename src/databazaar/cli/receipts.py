"""`bazaar audit --key`: the receipts that a hub has signed for a provider about its pay, checked without the hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from databazaar.cli.screen import say
from databazaar.errors import LedgerError, UncheckableError
from databazaar.files import read_plain
from databazaar.money import Currency


def check(files: Sequence[Path], key: Path, journal: Path | None) -> None:
    """Whether the hub has signed these receipts, and with a journal whether it has rewritten the books since."""
    from databazaar.client.journal import read_journal
    from databazaar.client.receipts import keys_of, rewritten, verify

    public = keys_of(_read(key))
    kept = []
    for path in files:
        receipt = _read(path)
        try:
            body = verify(receipt, public)
        except LedgerError as fault:
            raise LedgerError(f"{path}: {fault}") from None
        paid = Currency(str(body["currency"]), body["decimals"]).format(body["paid"])
        say(
            f"{path}: signed {body['at'][:19]}: {body['provider']} was paid {paid} for "
            f"{body['accesses']} accesses to {body['offer']} in job {body['job']}"
        )
        kept.append(receipt)
    if journal is None:
        say(f"ok: {len(kept)} signed by this hub; with --journal it is checked that no books were rewritten since")
        return
    if found := rewritten(kept, read_journal(journal)):
        raise LedgerError("; ".join(found))
    say(f"ok: {len(kept)} signed by this hub, and {journal} is the journal that they were signed for")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UncheckableError(f"{path} cannot be read as JSON: give the file as the hub has sent it")
    return found
