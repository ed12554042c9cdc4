"""Receipts: what the market signs for a provider, and the provider keeps.

A receipt names an entry of the ledger by number and hash, and with it all that came before; and it says how the
provider's accesses since the last receipt were settled, by which of its signed replies, what of their pay is held back,
what became of what was, and by which verdict. From then on the market cannot put the ledger back, write it anew, or
settle otherwise, without this provider being able to show it. It says nothing of anybody else.

Neither torch nor gRPC is needed to read one, and cryptography only to verify it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from databazaar.canonical import canonical, statement
from databazaar.codes import Code
from databazaar.federation.verdicts import Notice
from databazaar.files import append_lines, lines_of
from databazaar.ledger.chain import Entry
from databazaar.ledger.replies import is_hash

RECEIPTS = "receipts.jsonl"
MOST_ACCESSES = 2000
"""In one receipt; who is owed more gets several."""
LONGEST_LINE = 2 * 1024 * 1024
LONGEST_SIGNATURE, LONGEST_CERTIFICATE = 2048, 16_384
LARGEST_FILE = 512 * 1024 * 1024
"""A provider keeps no more: no market has reason to send so much."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settled:
    """How one access was settled: `paid`, or None and the `reason` for a void. `reply` is the hash of the signed reply,
    empty where the market has none. `held` is what is due and held back."""

    round: int
    draw: int
    paid: int | None
    reason: Code | None
    reply: str
    held: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Settled:
        """What a post or a void says."""
        paid = entry.amount if entry.posts else None
        reply = str(entry.body.get("reply", ""))
        return cls(entry.round or 0, entry.draw or 0, paid, entry.reason, reply, entry.body.get("held", 0))

    @classmethod
    def read(cls, body: dict[str, Any]) -> Settled:
        """From a receipt; anything else is an exception."""
        reason = body.pop("reason")
        return cls(**body, reason=None if reason is None else Code.read(reason))

    def body(self) -> dict[str, Any]:
        """As a receipt holds it: what is held back where anything is."""
        said = {**vars(self), "reason": None if self.reason is None else self.reason.body()}
        return said if self.held else {name: value for name, value in said.items() if name != "held"}

    def __str__(self) -> str:
        how = f"void ({self.reason})" if self.paid is None else f"paid {self.paid}"
        how += f", {self.held} held back" if self.held else ""
        return how + (f" for the reply {self.reply[:16]}" if self.reply else " without a reply")


@dataclass(frozen=True)
class Freed:
    """What became of all that was held back of a provider: it was `released` to it, or went back to the consumer, in a
    round or, where that is None, at the close."""

    round: int | None
    amount: int
    released: bool

    @classmethod
    def of(cls, entry: Entry) -> Freed:
        """What a release or a return says."""
        return cls(entry.round, entry.amount or 0, entry.releases)

    @property
    def when(self) -> str:
        return "at the close" if self.round is None else f"in round {self.round}"

    def __str__(self) -> str:
        return f"{self.amount} of held-back pay {'released' if self.released else 'returned to the consumer'}"


@dataclass(frozen=True)
class Receipt:
    """What the market's server signs: `rounds` rounds are accounted for, and entry `seq` of the ledger has the hash
    `head`. What there is nothing to say of is not written: where nothing is held back, it is as it always was."""

    market: str
    run: str
    provider: str
    seq: int
    head: str
    rounds: int
    accesses: tuple[Settled, ...]
    freed: tuple[Freed, ...] = ()
    verdicts: tuple[Notice, ...] = ()

    @cached_property
    def text(self) -> bytes:
        """The bytes that are signed."""
        said = {**asdict(self), "accesses": [one.body() for one in self.accesses]}
        later = ("freed", "verdicts")
        return statement("receipt", {name: value for name, value in said.items() if name not in later or value})

    @property
    def server(self) -> str:
        """Who has to have signed it."""
        return f"{self.market}.server"

    @classmethod
    def read(cls, text: bytes) -> Receipt | None:
        """The receipt in canonical JSON, None where that is none."""
        try:
            found = json.loads(text)
            if found.pop("kind") != "receipt":
                return None
            accesses, freed, verdicts = found.pop("accesses"), found.pop("freed", ()), found.pop("verdicts", ())
            receipt = cls(
                **found,
                accesses=tuple(map(Settled.read, accesses)),
                freed=tuple(Freed(**one) for one in freed),
                verdicts=tuple(Notice(**one) for one in verdicts),
            )
            sound = all(isinstance(value, str) for value in (receipt.market, receipt.run, receipt.provider))
            sound &= all(type(value) is int and value >= 0 for value in (receipt.seq, receipt.rounds))
            sound &= is_hash(receipt.head)
            sound &= all(map(_sound, receipt.accesses)) and all(map(_sound_freed, receipt.freed))
            sound &= all(told.sound for told in receipt.verdicts)
            return receipt if sound and receipt.text == text else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _sound(access: Settled) -> bool:
    numbers = [access.round, access.draw, access.held, *([] if access.paid is None else [access.paid])]
    replied = access.reply == "" or is_hash(access.reply)
    return replied and all(type(number) is int for number in numbers)


def _sound_freed(freed: Freed) -> bool:
    known = freed.round is None or type(freed.round) is int
    return known and type(freed.amount) is int and type(freed.released) is bool


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt with the signature of the market's server, in hexadecimal, and the server's certificate in PEM."""

    receipt: Receipt
    signature: str
    certificate: str

    @property
    def line(self) -> bytes:
        kept = {"receipt": self.receipt.text.decode(), "signature": self.signature, "certificate": self.certificate}
        return canonical(kept).encode()

    @classmethod
    def read(cls, line: bytes) -> SignedReceipt | None:
        try:
            found: dict[str, Any] = json.loads(line)
            return cls.of(str(found["receipt"]), str(found["signature"]), str(found["certificate"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    @classmethod
    def of(cls, text: str, signature: str, certificate: str) -> SignedReceipt | None:
        if len(signature) > LONGEST_SIGNATURE or len(certificate) > LONGEST_CERTIFICATE:
            return None
        receipt = Receipt.read(text.encode("utf-8", "replace"))
        return None if receipt is None else cls(receipt, signature, certificate)

    def verifies(self, authority: str) -> bool:
        """Whether the server of the market of this authority has signed it."""
        from databazaar.federation.signatures import issued, verifies

        key = issued(self.certificate, authority, self.receipt.server, server=True)
        return verifies(key, self.receipt.text, self.signature)


def receipts_in(path: Path) -> Iterator[SignedReceipt | None]:
    """The receipts of a file, None for every line that holds none; a file that is not there has no line."""
    if path.exists():
        for line in lines_of(path, LONGEST_LINE):
            if line:
                yield SignedReceipt.read(line)


def verified(kit: Path) -> tuple[list[Receipt], int]:
    """The receipts in a kit that the server of its market has signed, and how many lines are none."""
    authority = (kit / "startup" / "rootCA.pem").read_text()
    kept = list(receipts_in(kit / RECEIPTS))
    good = [signed.receipt for signed in kept if signed is not None and signed.verifies(authority)]
    return good, len(kept) - len(good)


class ReceiptKeeper:
    """The provider's side: keeps what its market has signed for it, whether it agrees or not."""

    def __init__(self, path: Path, provider: str, market: str, authority: str) -> None:
        self.path = path
        self._provider = provider
        self._market = market
        self._authority = authority

    @classmethod
    def of_kit(cls, kit: Path, provider: str, market: str) -> ReceiptKeeper:
        return cls(kit / RECEIPTS, provider, market, (kit / "startup" / "rootCA.pem").read_text())

    def take(self, text: str, signature: str, certificate: str) -> bool:
        """Keeps a receipt for good before it returns. False for one that is not the market's, or not for us: who
        could be shown it would not take it for evidence."""
        signed = SignedReceipt.of(text, signature, certificate)
        known = signed is not None and (signed.receipt.market, signed.receipt.provider) == (
            self._market,
            self._provider,
        )
        if signed is None or not known or not signed.verifies(self._authority):
            log.warning("a receipt was refused: it is not signed by the server of %s, or not for us", self._market)
            return False
        if self.path.exists() and self.path.stat().st_size > LARGEST_FILE:
            log.warning("a receipt was refused: %s is full; keep it elsewhere and remove it here", self.path)
            return False
        append_lines(self.path, [signed.line], 0o600)
        return True


def contradictions(receipts: Sequence[Receipt]) -> list[str]:
    """Where the market has signed two things of one run that cannot both be true."""
    heads: dict[tuple[str, int], str] = {}
    settled: dict[tuple[str, str, int, int], Settled] = {}
    freed: dict[tuple[str, str, int | None], Freed] = {}
    found = []
    for receipt in receipts:
        if heads.setdefault((receipt.run, receipt.seq), receipt.head) != receipt.head:
            found.append(f"two receipts name different hashes for entry {receipt.seq} of the ledger")
        for access in receipt.accesses:
            before = settled.setdefault((receipt.run, receipt.provider, access.round, access.draw), access)
            if before != access:
                found.append(f"round {access.round}, draw {access.draw}: one receipt says {before}, another {access}")
        for one in receipt.freed:
            if (first := freed.setdefault((receipt.run, receipt.provider, one.round), one)) != one:
                found.append(f"one receipt says {first} {one.when}, another {one}")
    return list(dict.fromkeys(found))
