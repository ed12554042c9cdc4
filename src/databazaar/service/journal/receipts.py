"""What the hub signs for providers, with a key of its own: Ed25519, made when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.receipts import rewritten, signed_bytes, verify
from databazaar.errors import BazaarError
from databazaar.files import alone, read_plain, write_whole
from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Contract, JournalEntry, Offer, OfferVersion, Organisation, Receipt
from databazaar.service.errors import MissingError
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["HubKey", "issue", "receipts_of", "rewritten", "verify"]


@dataclass(frozen=True)
class HubKey:
    """The hub's signing key. Keep a copy of its file: receipts of the next key are another hub's."""

    _private: Ed25519PrivateKey

    @classmethod
    def of(cls, settings: Settings) -> HubKey:
        """The key in the hub's folder, for its owner alone to read; where there is none, a new one."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        path = settings.keys / "signing.pem"
        settings.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone(settings.keys / ".lock"):
            try:
                private = serialization.load_pem_private_key(read_plain(path, most=10_000), password=None)
            except FileNotFoundError:
                private = Ed25519PrivateKey.generate()
                form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                write_whole(path, private.private_bytes(*form), mode=0o600)
            except ValueError:
                private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise BazaarError(f"{path} is no key of a hub: put its copy back")
        return cls(private)

    @property
    def public(self) -> str:
        """The key to verify with, 64 hexadecimal digits: publish it, and let providers keep it."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, body: Mapping[str, Any]) -> str:
        """The signature of a receipt's body, in hexadecimal digits."""
        return self._private.sign(signed_bytes(body)).hex()


def issue(
    session: Session, key: HubKey, contract: Contract, entry: JournalEntry, *, market: str, run_head: str
) -> Receipt:
    """The receipt of a contract whose accesses and pay are set and whose job was closed by that entry; one for each."""
    known = session.scalar(select(Receipt).where(Receipt.contract_id == contract.id))
    if known is not None:
        return known
    body = {
        "market": market,
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
