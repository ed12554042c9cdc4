"""Receipts that the hub signs for providers about their contracts, and its Ed25519 key.

A key that was changed stays published, with its signature for the next one, so that what it has signed can be checked
for good. Its private half is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.receipts import next_key_bytes, signed_bytes
from databazaar.errors import BazaarError
from databazaar.files import alone, read_plain, write_whole
from databazaar.money import Currency
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Contract, JournalEntry, Offer, OfferVersion, Organisation, Receipt, now
from databazaar.service.errors import MissingError
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


CURRENT, FORMER, LOCK = "signing.pem", "former.json", ".lock"
MOST_BYTES = 2**20


@dataclass(frozen=True)
class HubKey:
    """The hub's signing key. Keep a copy of its file: receipts of a key that nothing leads to are another hub's."""

    _private: Ed25519PrivateKey

    @classmethod
    def of(cls, settings: Settings) -> HubKey:
        """The key in the hub's folder, for its owner alone to read; where there is none, a new one."""
        settings.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        with alone(settings.keys / LOCK):
            return cls._read(settings.keys / CURRENT)

    @classmethod
    def _read(cls, path: Path) -> HubKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(read_plain(path, most=10_000), password=None)
        except FileNotFoundError:
            return cls(Ed25519PrivateKey.generate())._kept(path)
        except ValueError:
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise BazaarError(f"{path} is no key of a hub: put its copy back")
        return cls(private)

    def _kept(self, path: Path) -> HubKey:
        from cryptography.hazmat.primitives import serialization

        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        write_whole(path, self._private.private_bytes(*form), mode=0o600)
        return self

    @property
    def public(self) -> str:
        """The key to verify with, 64 hexadecimal digits: publish it, and let providers keep it."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, body: Mapping[str, Any]) -> str:
        """The signature of a receipt's body, in hexadecimal digits."""
        return self._private.sign(signed_bytes(body)).hex()


def published(settings: Settings) -> dict[str, Any]:
    """What everybody may know: the key in use, and those before it, the oldest first."""
    key = HubKey.of(settings).public
    return {"key": key, "former": [one for one in _former(settings) if one["key"] != key]}


def rotate(settings: Settings) -> HubKey:
    """A new key from now on. The old one signs for it first, and that is kept before the old one goes: whatever happens
    between the two, a key is in use that leads back to the first."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    settings.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone(settings.keys / LOCK):
        old = HubKey._read(settings.keys / CURRENT)
        new = HubKey(Ed25519PrivateKey.generate())
        until = now().isoformat(timespec="seconds")
        said = next_key_bytes(old.public, new.public, until)
        last = {"key": old.public, "next": new.public, "until": until, "signature": old._private.sign(said).hex()}
        former = [*(one for one in _former(settings) if one["key"] != old.public), last]
        write_whole(settings.keys / FORMER, json.dumps(former, indent=2).encode(), mode=0o600)
        return new._kept(settings.keys / CURRENT)


def _former(settings: Settings) -> list[dict[str, str]]:
    path = settings.keys / FORMER
    try:
        found: list[dict[str, str]] = json.loads(read_plain(path, most=MOST_BYTES))
    except FileNotFoundError:
        return []
    except ValueError:
        raise BazaarError(f"{path} does not hold the hub's former keys: put its copy back") from None
    return found


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
    return receipt


def receipts_of(session: Session, caller: Caller, contract_id: str | None = None) -> list[Receipt]:
    """The receipts that the hub has signed for the caller, the newest first, or that of one of its contracts."""
    caller.require("read")
    found = select(Receipt).where(Receipt.organisation_id == caller.organisation_id)
    if contract_id is not None:
        found = found.where(Receipt.contract_id == contract_id)
    receipts = list(session.scalars(found.order_by(Receipt.created_at.desc(), Receipt.id)))
    if contract_id is not None and not receipts:
        raise MissingError("there is no receipt of that contract: one is signed when its job is settled")
    return receipts
