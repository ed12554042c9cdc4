"""`bazaar audit` beyond the ledger: what its parties have signed, and the receipts that providers have kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from databazaar.errors import UncheckableError
from databazaar.ledger import Audit
from databazaar.runs.folder import RunFolder


@dataclass(frozen=True)
class Examined:
    """An audit with what signatures add to it: how many receipts were compared, and what there is to say of them."""

    audit: Audit
    receipts: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        if not self.audit.ok or not self.receipts:
            return self.audit.message
        number = "1 receipt" if self.receipts == 1 else f"{self.receipts} receipts"
        return f"{self.audit.message}; {number} of the market agree with it"


def examine(run: RunFolder, found: Audit, kits: Sequence[Path], authority: Path | None) -> Examined:
    """Verifies the signed replies that the ledger names, and holds it against receipts. What cannot be verified here is
    an UncheckableError; a ledger that is broken already is not looked at."""
    if not found.ok or not (found.replies or kits):
        return Examined(found)
    try:
        from databazaar.federation import disputes
    except ImportError:
        raise UncheckableError(
            "signatures cannot be verified here, because cryptography is missing: pip install 'databazaar[federated]'"
        ) from None
    evidence = run.evidence
    trusted = disputes.authority_for(authority, evidence.authority(), kits)
    helds = [disputes.read_held(kit, run.id, trusted) for kit in kits]
    receipts = sum(len(held.receipts) for held in helds)
    compared = disputes.compare(run.entries(), helds)
    broken = compared.broken
    replies = evidence.replies(len(compared.named))
    broken += disputes.check_replies(compared.named, replies, evidence.certificates(), trusted)
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return Examined(replace(found, first_broken=broken[0] + more), receipts, (*broken[1:], *compared.remarks))
    if kits and not receipts:
        why = "; ".join(compared.remarks) or f"none of its receipts is of the run {run.id}"
        raise UncheckableError(f"there is nothing to hold the ledger against: {why}")
    return Examined(found, receipts, tuple(compared.remarks))
