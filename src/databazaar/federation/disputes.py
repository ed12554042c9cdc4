"""What signatures prove about a ledger: `bazaar audit` with the receipts that providers have kept.

Only what the market has signed counts against its ledger, and only what a provider has signed counts against the
provider. What one of them merely says is told as a remark. Neither torch nor gRPC is needed, only cryptography.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from databazaar.errors import BazaarError, UncheckableError
from databazaar.federation.pki import verifies
from databazaar.federation.receipts import (
    LARGEST_FILE,
    RECEIPTS,
    Freed,
    Hearing,
    Notice,
    Receipt,
    Settled,
    contradictions,
    receipts_in,
)
from databazaar.federation.records import ANSWERS, AccessRecord, Answer
from databazaar.federation.signatures import issued
from databazaar.federation.transport import FAILED, REFUSED, UNANSWERED, declined
from databazaar.ledger.chain import Entry
from databazaar.ledger.replies import SignedReply

AUTHORITY = "startup/rootCA.pem"
Accesses = dict[tuple[str, int, int], Settled]
"""How the ledger settled accesses, by provider, round and draw."""
_SHOWN = 5
_LONGEST_PEM = 65536
_MOST_ANSWERS = 2**18
_MOST_CERTIFICATES = 64


@dataclass
class Held:
    """What one provider has brought: its receipts, its own record of its answers, and the authority that it trusts."""

    place: Path
    receipts: list[Receipt] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    worthless: int = 0
    """Lines that are no receipt of this market."""


@dataclass
class DisputeFindings:
    """`broken` is what contradicts the ledger, `remarks` what else there is to say. `named` are the signed replies that
    the ledger names, and how it has settled them: a provider drawn twice in a round was asked once."""

    broken: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, list[Settled]] = field(default_factory=dict)


def authority_for(given: Path | None, of_run: str, kits: Sequence[Path]) -> str:
    """The certificate of the market's authority, as the run names it, if no kit names another. A caller that knows more
    gives it: a kit alone is not believed, since who accuses a market could have made the authority up."""
    if given is not None:
        try:
            return given.read_text(encoding="ascii")
        except (OSError, ValueError):
            raise BazaarError(f"{given} cannot be read as a certificate in PEM: give the market's ca.pem") from None
    known = {of_run.strip()}
    for kit in kits:
        if (kit / AUTHORITY).is_file():
            with (kit / AUTHORITY).open(encoding="ascii", errors="replace") as file:
                known.add(file.read(_LONGEST_PEM).strip())
    if not of_run.strip() or len(known) > 1:
        why = "the run and the kits name different authorities" if of_run.strip() else "the run names no authority"
        raise UncheckableError(f"{why}: give the market's own certificate with --authority ca.pem")
    return known.pop()


def read_held(place: Path, run: str, authority: str) -> Held:
    """The receipts for a run that are worth something, from a kit or from a file of receipts."""
    path = place / RECEIPTS if place.is_dir() else place
    if not path.exists():
        raise BazaarError(f"{place} holds no receipts: give a provider's kit, or its {RECEIPTS}")
    held = Held(place)
    for file in (path, place / ANSWERS) if place.is_dir() else (path,):
        if file.exists() and file.stat().st_size > LARGEST_FILE:
            raise BazaarError(f"{file} has more than {LARGEST_FILE:,} bytes: that is not ours, and it is not read")
    for signed in receipts_in(path):
        if signed is None or not signed.verifies(authority):
            held.worthless += 1
        elif signed.receipt.run == run:
            held.receipts.append(signed.receipt)
    held.receipts = list(dict.fromkeys(held.receipts))
    if place.is_dir():
        answers = (answer for answer in AccessRecord(place / ANSWERS) if answer.run == run)
        held.answers = list(islice(answers, _MOST_ANSWERS))
    return held


def compare(entries: Iterable[Entry], helds: Sequence[Held]) -> DisputeFindings:
    """Holds a ledger against receipts, in one pass over its entries."""
    receipts = [receipt for held in helds for receipt in held.receipts]
    wanted, providers = {receipt.seq for receipt in receipts}, {receipt.provider for receipt in receipts}
    heads: dict[int, str] = {}
    settled: Accesses = {}
    freed: dict[tuple[str, int | None], Freed] = {}
    hearing, told = Hearing(), set[tuple[str, Notice]]()
    found, length = DisputeFindings(), 0
    for entry in entries:
        length += 1
        told.update(one for one in hearing.hear(entry) if one[0] in providers)
        if entry.seq in wanted:
            heads[entry.seq] = entry.hash
        if entry.settles:
            how = Settled.of(entry)
            if entry.provider in providers:
                settled[entry.provider, how.round, how.draw] = how
            if how.reply:
                found.named.setdefault(how.reply, []).append(how)
        elif entry.frees and entry.provider in providers:
            freed[entry.provider, entry.round] = Freed.of(entry)
    said = dict.fromkeys(line for receipt in receipts for line in _denied(receipt, settled, freed, told))
    found.broken = [*_heads(receipts, heads, length), *said, *contradictions(receipts)]
    found.remarks = [remark for held in helds for remark in _remarks(held, settled)]
    return found


def _heads(receipts: Sequence[Receipt], heads: Mapping[int, str], length: int) -> list[str]:
    """What the hashes in receipts say of the ledger: it is the same, cut short, or another one."""
    same = [receipt.seq for receipt in receipts if heads.get(receipt.seq) == receipt.head]
    other = [receipt.seq for receipt in receipts if heads.get(receipt.seq, receipt.head) != receipt.head]
    beyond = [receipt for receipt in receipts if receipt.seq >= length]
    if other and not same:
        return [f"entry {min(other)} has another hash than the market's receipt says: this is another ledger"]
    if other:
        return [
            f"entry {min(other)} has another hash than the market's receipt says, and entry {max(same)} the same: the "
            "ledger was written anew in between"
        ]
    if beyond:
        last = max(beyond, key=lambda receipt: receipt.seq)
        return [
            f"the ledger has {length} entries, and the market's receipt names entry {last.seq}, after {last.rounds} "
            "rounds: it was cut short, or an older one was put back"
        ]
    return []


def _denied(
    receipt: Receipt,
    settled: Accesses,
    freed: Mapping[tuple[str, int | None], Freed],
    told: Collection[tuple[str, Notice]],
) -> Iterator[str]:
    """What a receipt says of accesses, of held-back pay and of verdicts, and does not follow from the ledger."""
    provider, says = receipt.provider, f"the market's receipt for {receipt.provider} says"
    for access in receipt.accesses:
        how = settled.get((provider, access.round, access.draw))
        what = f"round {access.round}, draw {access.draw}: {says} {access}"
        if how != access:
            yield f"{what}, and the ledger {'has no such access' if how is None else f'says {how}'}"
        elif access.paid is None and access.reply and _unanswered(access):
            yield f"{what}: it acknowledges an answer, and denies that there was one"
    for one in receipt.freed:
        if (here := freed.get((provider, one.round))) != one:
            yield f"{says} {one} {one.when}, and the ledger {'has nothing of it' if here is None else f'says {here}'}"
    for notice in receipt.verdicts:
        if (provider, notice) not in told:
            yield f"{says} that it was {notice}, and this does not follow from the ledger"


def _remarks(held: Held, settled: Accesses) -> list[str]:
    """What a provider's own record adds: its word, and no proof."""
    remarks = []
    if held.worthless:
        lines = "1 line is" if held.worthless == 1 else f"{held.worthless} lines are"
        remarks.append(f"{held.place}: {lines} not signed by the market's server, and no evidence")
    if not held.receipts or not held.answers:
        return remarks
    provider, rounds = held.receipts[-1].provider, max(receipt.rounds for receipt in held.receipts)
    replies = {round: how.reply for (who, round, _), how in settled.items() if who == provider and how.reply}
    answered = {answer.round for answer in held.answers if answer.status == "ok" and answer.round < rounds}
    own = {answer.reply for answer in held.answers}
    if denied := sorted(answered - set(replies)):
        remarks.append(
            f"{provider} says that it answered in {_in_rounds(denied)}, and the ledger names no reply of it there"
        )
    if unknown := sorted(round for round, reply in replies.items() if reply not in own):
        remarks.append(f"{provider} has no record of the reply that the ledger names in {_in_rounds(unknown)}")
    return remarks


def _in_rounds(rounds: Sequence[int]) -> str:
    return f"round {', '.join(map(str, rounds[:_SHOWN]))}{' …' if len(rounds) > _SHOWN else ''}"


def check_replies(
    named: Mapping[str, Sequence[Settled]],
    replies: Iterable[SignedReply],
    certificates: Mapping[str, Sequence[str]],
    authority: str,
) -> list[str]:
    """What is wrong with the signed replies that a ledger names, by their hashes; and with what it has made of them. Of
    several copies the first one counts, so that copies without end cost nothing."""
    found, left, unsigned = list[str](), dict(named), dict[str, Sequence[Settled]]()
    for reply in replies:
        said = reply.statement
        if (accesses := left.pop(said.digest, None)) is None:
            continue
        pems = certificates.get(said.provider, ())[:_MOST_CERTIFICATES]
        if not any(verifies(issued(pem, authority, said.provider), said.text, reply.signature) for pem in pems):
            unsigned[said.digest] = accesses
        elif (why := next(filter(None, (_misread(reply, access) for access in accesses)), None)) is not None:
            found.append(f"round {said.round}: the reply {said.digest[:16]} of {said.provider} {why}")
    found += [
        f"round {one.round}: the reply {digest[:16]} is not signed by the provider's key as the market certified it"
        for digest, (one, *_) in {**unsigned, **left}.items()
    ]
    return found


def _misread(reply: SignedReply, access: Settled) -> str | None:
    """Why the ledger cannot have settled an access so if this is the reply."""
    said = reply.statement
    if access.paid is not None:
        return None if said.status == "ok" and said.update else "brings no update, and the ledger has it as paid"
    if _unanswered(access):
        return f"was answered, and the ledger has it as void: {access.reason}"
    claimed = access.reason is not None and access.reason.name in (REFUSED, FAILED)
    if claimed and (said.status == "ok" or access.reason != declined(said.status, said.code)):
        return f"says {said.status!r}, and the ledger has it as void: {access.reason}"
    return None


def _unanswered(access: Settled) -> bool:
    return access.reason is not None and access.reason.name in UNANSWERED
