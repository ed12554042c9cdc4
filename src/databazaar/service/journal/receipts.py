"""What the hub signs for providers about their contracts."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.receipts import rewritten, verify
from databazaar.money import Currency
from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, JournalEntry, Offer, OfferVersion, Organisation, Receipt
from databazaar.service.errors import MissingError
from databazaar.service.journal.keys import HubKey

__all__ = ["issue", "receipts_of", "rewritten", "verify"]


def issue(
    session: Session,
    key: HubKey,
    contract: Contract,
    entry: JournalEntry,
    *,
    market: str,
    currency: Currency,
    run_head: str,
) -> Receipt:
    """The receipt of a contract whose accesses and pay are set and whose job was closed by that entry; one for each."""
    known = session.scalar(select(Receipt).where(Receipt.contract_id == contract.id))
    if known is not None:
        return known
    body = {
        "market": market,
        "currency": currency.name,
        "decimals": currency.decimals,
        "provider": session.get_one(Organisation, contract.provider_id).slug,
        "job": contract.job_id,
        "contract": contract.id,
        "offer": session.get_one(Offer, contract.offer_id).slug,
        "version": session.get_one(OfferVersion, contract.version_id).digest,
        "accesses": contract.accesses or 0,
        "paid": contract.paid or 0,
        "run_head": run_head,
        "journal_seq": entry.seq,
        "journal_hash": entry.hash,
        "at": now().isoformat(timespec="microseconds"),
        "key": key.public,
    }
    receipt = Receipt(
        organisation_id=contract.provider_id, contract_id=contract.id, body=body, signature=key.sign(body)
    )
    session.add(receipt)
    session.flush()
    return receipt


def receipts_of(session: Session, caller: Caller, contract_id: str | None = None) -> list[Receipt]:
    """The caller's receipts, the newest first, or that of one of its contracts."""
    caller.require("read")
    found = select(Receipt).where(Receipt.organisation_id == caller.organisation_id)
    if contract_id is not None:
        found = found.where(Receipt.contract_id == contract_id)
    receipts = list(session.scalars(found.order_by(Receipt.created_at.desc(), Receipt.id)))
    if contract_id is not None and not receipts:
        raise MissingError("there is no receipt of that contract: one is signed when its job is settled")
    return receipts
