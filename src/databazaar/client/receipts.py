"""Receipts of a hub: what it has signed for a provider about one contract, and what a provider proves with them.

A receipt names an entry of the journal by number and hash, and with it all that came before; and it names the head of
the run that was paid for. A hub that writes either anew contradicts its own signature. To check that, a provider needs
its receipts, the hub's public key and the journal's lines (`databazaar.client.journal`), and nobody's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from databazaar.canonical import statement
from databazaar.client.journal import Hidden, JournalLine, checked
from databazaar.errors import LedgerError

FIELDS = (
    "market",
    "currency",
    "decimals",
    "provider",
    "job",
    "contract",
    "offer",
    "version",
    "accesses",
    "paid",
    "run_head",
    "journal_seq",
    "journal_hash",
    "at",
    "key",
)
"""What a receipt's body says: `provider` and `offer` are slugs, `version` the hash of the data (None for a site's),
`paid` is in minor units of `currency`, which has so many `decimals`, `key` is the public key that it is signed with."""


def signed_bytes(body: Mapping[str, Any]) -> bytes:
    return statement("hub-receipt", body)


def next_key_bytes(key: str, following: str, until: str) -> bytes:
    """What a key signs of the one that takes its place."""
    return statement("hub-next-key", {"key": key, "next": following, "until": until})


def keys_of(published: Mapping[str, Any]) -> list[str]:
    """The keys that a hub has published (GET /v1/key): the one in use, and those that it took the place of, each of
    which has signed for the next. A LedgerError where one has not."""
    try:
        keys, former = [published["key"]], published.get("former", [])
        for one in reversed(former):
            said = next_key_bytes(one["key"], one["next"], one["until"])
            if one["next"] != keys[-1] or not _holds(one["key"], one["signature"], said):
                raise LedgerError("a key of this hub was not signed for by the one before: it is another hub's")
            keys.append(one["key"])
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise LedgerError("these are no keys of a hub: give the file as the hub has sent it") from None
    return keys


def verify(receipt: Mapping[str, Any], public_key: str | Sequence[str]) -> Mapping[str, Any]:
    """The body of a receipt (`body` and `signature`) that this hub has signed; a LedgerError where it has not. A hub
    that has changed its key has several: `keys_of`."""
    keys = [public_key] if isinstance(public_key, str) else public_key
    try:
        body = receipt["body"]
        signed = body["key"] in keys and _holds(body["key"], receipt["signature"], signed_bytes(body))
        numbers = [body[name] for name in ("journal_seq", "accesses", "paid", "decimals")]
        whole = signed and set(body) >= set(FIELDS) and all(type(one) is int and one >= 0 for one in numbers)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise LedgerError("this receipt was not signed with that key: it was changed, or it is another hub's")
    return dict(body)


def _holds(key: str, signature: str, said: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), said)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def rewritten(
    receipts: Sequence[Mapping[str, Any]],
    entries: Iterable[JournalLine | Hidden],
    runs: Mapping[str, str] | None = None,
) -> list[str]:
    """Where history is not what the hub has signed, one sentence each; an empty list where it is.

    Verify the receipts first. `runs` are the heads of runs by job, where the provider has been shown their ledgers. A
    journal whose chain breaks in itself is a LedgerError.
    """
    awaited: dict[int, list[Mapping[str, Any]]] = {}
    for receipt in receipts:
        awaited.setdefault(receipt["body"]["journal_seq"], []).append(receipt["body"])
    found = []
    for entry in checked(entries):
        found += [fault for body in awaited.pop(entry.seq, []) if (fault := _fault(body, entry))]
    for seq, bodies in sorted(awaited.items()):
        found += [f"the journal ends before entry {seq}, which was signed for job {body['job']}" for body in bodies]
    for receipt in receipts:
        job, signed = receipt["body"]["job"], receipt["body"]["run_head"]
        if runs is not None and runs.get(job, signed) != signed:
            found.append(f"the run of job {job} has the head {runs[job]}, and {signed} was signed: it was rewritten")
    return found


def _fault(body: Mapping[str, Any], entry: JournalLine | Hidden) -> str | None:
    job = body["job"]
    if entry.hash != body["journal_hash"]:
        return f"{entry} is not the one that was signed for job {job}: the journal was rewritten"
    if isinstance(entry, Hidden):
        return None
    if entry.key != f"close:{job}":
        return f"{entry} does not close job {job}, which the receipt says"
    if entry.body.get("run_head", body["run_head"]) != body["run_head"]:
        return f"{entry} names another head of the run of job {job} than the receipt"
    if entry.postings.get(f"earned:{body['provider']}", 0) < body["paid"]:
        return f"{entry} pays {body['provider']} less than the {body['paid']} of the receipt"
    return None
