"""Receipts: what the market signs for a provider, and the provider keeps.

A receipt names an entry of the ledger by number and hash, and with it all that came before; and it says how the
provider's accesses since the last receipt were settled, by which of its signed replies, what of their pay is held back,
what became of what was, and by which verdict. From then on the market cannot put the ledger back, write it anew, or
settle otherwise, without this provider being able to show it. It says nothing of anybody else.

Verdicts are no entries of a ledger. They follow from the findings in it, and `Hearing` works them out as an audit does:
for the arbiter's side to tell them, and for a party that compares a receipt with a ledger to verify them.

Neither torch nor gRPC is needed to read a receipt, and cryptography only to verify it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter

from databazaar.canonical import canonical, statement
from databazaar.codes import Code
from databazaar.defence import Defence, Findings, judge
from databazaar.defence.detector import DetectorState
from databazaar.defence.words import TITLES, sentence_of
from databazaar.files import append_lines, lines_of
from databazaar.ledger.chain import Entry
from databazaar.ledger.terms import Terms

RECEIPTS = "receipts.jsonl"
MOST_ACCESSES = 2000
"""In one receipt; who is owed more gets several."""
LONGEST_LINE = 2 * 1024 * 1024
LONGEST_SIGNATURE, LONGEST_CERTIFICATE = 2048, 16_384
LARGEST_FILE = 512 * 1024 * 1024
"""A provider keeps no more: no market has reason to send so much."""
log = logging.getLogger(__name__)

_Count = Annotated[int, Field(ge=0)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Number = int | Annotated[float, Field(allow_inf_nan=False)]
_Reason = Annotated[Code, PlainValidator(Code.read), PlainSerializer(Code.body)]
_Rule = Annotated[str, Field(pattern=f"^({'|'.join(TITLES)})$")]


@dataclass(frozen=True)
class Settled:
    """How one access was settled: `paid`, or None and the `reason` for a void. `reply` is the hash of the signed reply,
    empty where the market has none. `held` is what is due and held back."""

    round: int
    draw: int
    paid: int | None
    reason: _Reason | None
    reply: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    held: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Settled:
        paid = entry.amount if entry.posts else None
        reply = str(entry.body.get("reply", ""))
        return cls(entry.round or 0, entry.draw or 0, paid, entry.reason, reply, entry.body.get("held", 0))

    def __str__(self) -> str:
        how = f"void ({self.reason})" if self.paid is None else f"paid {self.paid}"
        how += f", {self.held} held back" if self.held else ""
        return how + (f" for the reply {self.reply[:16]}" if self.reply else " without a reply")


@dataclass(frozen=True)
class Freed:
    """Held-back pay that was `released` to the provider or returned to the consumer. `round` is None at the close."""

    round: int | None
    amount: int
    released: bool

    @classmethod
    def of(cls, entry: Entry) -> Freed:
        return cls(entry.round, entry.amount or 0, entry.releases)

    @property
    def when(self) -> str:
        return "at the close" if self.round is None else f"in round {self.round}"

    def __str__(self) -> str:
        return f"{self.amount} of held-back pay {'released' if self.released else 'returned to the consumer'}"


@dataclass(frozen=True)
class Notice:
    """One verdict as a receipt has it: what was found in a round, by a figure beside its limit, after so many answers
    of its owner (where it is like another: of its own), and the number and the hash of the ledger's entry that bears
    the figure. Whom it is like is not said."""

    round: _Count
    what: _Rule
    figure: _Number
    limit: _Number
    answers: _Count
    entry: _Count
    hash: _Hash

    def __str__(self) -> str:
        why = sentence_of(self.what, self.figure, self.limit, self.answers)
        return f"{TITLES[self.what]} in round {self.round}: {why} (entry {self.entry} of the ledger, {self.hash})"


@dataclass(frozen=True)
class Receipt:
    """What the market's server signs: `rounds` rounds are accounted for, and entry `seq` of the ledger has the hash
    `head`. What there is nothing to say of is not written."""

    market: str
    run: str
    provider: str
    seq: _Count
    head: _Hash
    rounds: _Count
    accesses: tuple[Settled, ...]
    freed: tuple[Freed, ...] = ()
    verdicts: tuple[Notice, ...] = ()

    @cached_property
    def text(self) -> bytes:
        """The bytes that are signed."""
        return statement("receipt", _RECEIPT.dump_python(self, exclude_defaults=True, warnings=False))

    @property
    def server(self) -> str:
        """The name of the party that has to have signed it."""
        return f"{self.market}.server"

    @classmethod
    def read(cls, text: bytes) -> Receipt | None:
        """The receipt in canonical JSON, None where that is none."""
        try:
            receipt = _RECEIPT.validate_json(text, strict=True)
            return receipt if receipt.text == text else None
        except ValueError:
            return None


_RECEIPT = TypeAdapter(Receipt)


class Hearing:
    """Follows the entries of a ledger, and comes to the verdicts."""

    def __init__(self) -> None:
        self._terms: Terms | None = None
        self._defence = Defence()
        self._valid: dict[int, bool] = {}

    def hear(self, entry: Entry) -> list[tuple[str, Notice]]:
        """The verdicts that an entry of a sound ledger brings, with the provider that each is told to."""
        if entry.opens:
            self._terms = Terms.from_body(entry.body)
            self._defence = Defence.of(self._terms.rules.get("defence", {}))
            self._detector = DetectorState.new(self._terms.roster, self._defence.owners)
        elif self._terms is None or self._defence.off:
            return []
        elif entry.settles and entry.provider is not None:
            self._valid.setdefault(self._terms.places[entry.provider], entry.posts)
        elif entry.ends_round:
            return self._judge(entry, self._terms)
        return []

    def _judge(self, entry: Entry, terms: Terms) -> list[tuple[str, Notice]]:
        asked, self._valid = self._valid, {}
        findings = Findings.of(entry.body.get("findings", {}), len(asked), len(terms.roster))
        judged = judge(self._defence, self._detector, list(asked), list(asked.values()), findings)
        self._detector, found = judged.detector, []
        owners = judged.detector.owner_answers
        for verdict in judged.verdicts:
            for place in (verdict.provider, *(() if verdict.other is None else (verdict.other,))):
                answers = int((judged.detector.answers if verdict.what == "alike" else owners)[place])
                figures = verdict.what, verdict.figure, verdict.limit, answers
                found.append((terms.roster.ids[place], Notice(entry.round or 0, *figures, entry.seq, entry.hash)))
        return found


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
            found = json.loads(line)
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
        from databazaar.federation.pki import verifies
        from databazaar.federation.signatures import issued

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

    def __init__(self, kit: Path, provider: str, market: str) -> None:
        self.path = kit / RECEIPTS
        self._provider, self._market = provider, market
        self._authority = (kit / "startup" / "rootCA.pem").read_text()

    def take(self, text: str, signature: str, certificate: str) -> bool:
        """Keeps a receipt for good before it returns; False for one that is not the market's, or not for us."""
        signed = SignedReceipt.of(text, signature, certificate)
        named = None if signed is None else (signed.receipt.market, signed.receipt.provider)
        if signed is None or named != (self._market, self._provider) or not signed.verifies(self._authority):
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
