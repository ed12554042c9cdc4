"""A hub's journal as anybody can check it, without a database and without the hub: from its exported lines.

One line is one entry. The hub writes whole lines for its operator. Everybody else gets a line that hides what the entry
says behind its hash (`content`): it shows that the chain is the same for all, and nothing of others' money.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from databazaar.canonical import GENESIS, canonical, chained, digest_of
from databazaar.errors import LedgerError, UncheckableError

KINDS = {
    "deposit": ("outside", {"cash"}),
    "fund": ("cash", {"escrow"}),
    "close": ("escrow", {"earned", "fees", "cash"}),
    "payout": ("earned", {"outside"}),
    "withdraw": ("cash", {"outside"}),
}
"""Which sort of account each kind of entry takes money from, and which it brings money to."""
OF_JOBS = frozenset({"fund", "close"})


class JournalLine(NamedTuple):
    """One transaction between accounts, sealed with the hash of all that came before it. `at` is ISO 8601 in UTC."""

    seq: int
    kind: str
    key: str
    job: str | None
    at: str
    postings: Mapping[str, int]
    body: Mapping[str, Any]
    salt: str
    hash: str = ""

    @property
    def content(self) -> str:
        """The hash of all but the hash, as canonical JSON. The salt keeps others from guessing it."""
        return digest_of(self[:8])

    def __str__(self) -> str:
        return f"entry {self.seq} ({self.key})"


class Hidden(NamedTuple):
    """An entry of which only the hash of what it says is shown."""

    seq: int
    content: str
    hash: str

    def __str__(self) -> str:
        return f"entry {self.seq}"


def fault_of(kind: str, key: str, job: str | None, postings: Mapping[str, int]) -> str | None:
    """Why these postings cannot be an entry of that kind; None where they can.

    >>> fault_of("deposit", "deposit:7", None, {"outside": -5, "cash:acme": 5})
    >>> fault_of("deposit", "deposit:7", None, {"outside": -5, "earned:acme": 5})
    'a deposit brings nothing to earned:acme'
    """
    if kind not in KINDS:
        return f"there are no entries of the kind {kind!r}"
    source, targets = KINDS[kind]
    if not key.startswith(kind + ":") or (kind in OF_JOBS) != (job is not None):
        return f"its key {key!r} is not one of a {kind}"
    if job is not None and key != f"{kind}:{job}":
        return f"its key {key!r} is not that of job {job}"
    total = givers = 0
    for account, amount in postings.items():
        sort = account.partition(":")[0]
        total += amount
        if sort == "escrow" and account != f"escrow:{job}":
            return f"a {kind} of job {job} does not touch {account}"
        if amount > 0:
            if sort not in targets:
                return f"a {kind} brings nothing to {account}"
        elif amount == 0:
            return f"nothing is moved to {account}"
        else:
            givers += 1
            if sort != source:
                return f"a {kind} takes nothing from {account}"
    if total:
        return f"its postings sum to {total}, and not to zero"
    if givers != 1 or (len(postings) != 2 and kind != "close"):
        return f"a {kind} is between two accounts"
    return None


@dataclass
class JournalReplay:
    """All that follows from the entries so far. `take` goes on by one; the first fault is told, and then it ends."""

    seq: int = -1
    head: str = GENESIS
    postings: int = 0
    balances: dict[str, int] = field(default_factory=dict)
    _keys: set[str] = field(default_factory=set)
    _payers: dict[str, str] = field(default_factory=dict)

    def take(self, entry: JournalLine | Hidden) -> str | None:
        """Why the entry does not follow from those before it; None where it does."""
        if entry.seq != self.seq + 1:
            return f"{entry} comes where entry {self.seq + 1} is due: entries were removed or moved"
        if entry.hash != chained(self.head, entry.content):
            return f"{entry} does not follow from the entries before it: it was changed"
        if isinstance(entry, JournalLine) and (fault := self._move(entry)):
            return f"{entry} should not be there: {fault}"
        self.seq, self.head = entry.seq, entry.hash
        return None

    def _move(self, entry: JournalLine) -> str | None:
        if fault := fault_of(entry.kind, entry.key, entry.job, entry.postings):
            return fault
        if entry.key in self._keys:
            return "its key was used before"
        self._keys.add(entry.key)
        balances = self.balances
        for account, amount in entry.postings.items():
            balance = balances[account] = balances.get(account, 0) + amount
            if balance < 0 and account != "outside":
                return f"{account} would be at {balance}"
        self.postings += len(entry.postings)
        return self._job_fault(entry) if entry.job is not None else None

    def _job_fault(self, entry: JournalLine) -> str | None:
        """A job is funded once from one account, and closed once: its escrow is empty then, the rest back there."""
        job = str(entry.job)
        cash = next((account for account in entry.postings if account.startswith("cash:")), None)
        if entry.kind == "fund":
            self._payers[job] = str(cash)
            return None
        if job not in self._payers:
            return f"job {job} was never funded"
        if self.balances[f"escrow:{job}"]:
            return f"it leaves {self.balances[f'escrow:{job}']} in the escrow"
        if cash not in (None, self._payers[job]):
            return f"it refunds {cash}, and {self._payers[job]} has funded the job"
        return None


def read_journal(path: Path) -> Iterator[JournalLine | Hidden]:
    """The entries of an exported journal, one after another, as the file has them."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                yield _entry(line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as reason:
        raise UncheckableError(f"{path} cannot be read ({reason}): give the file of an exported journal") from None


def _entry(line: str, place: str) -> JournalLine | Hidden:
    try:
        given = json.loads(line)
        canonical(given).encode()  # neither numbers nor text that JSON cannot hold
        if "content" in given:
            return Hidden(int(given["seq"]), str(given["content"]), str(given["hash"]))
        postings = {str(account): int(amount) for account, amount in given["postings"].items()}
        texts = [str(given[name]) for name in ("at", "salt", "hash")]
        job = None if given["job"] is None else str(given["job"])
        kind, key, body = str(given["kind"]), str(given["key"]), dict(given["body"])
        return JournalLine(int(given["seq"]), kind, key, job, texts[0], postings, body, *texts[1:])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UncheckableError(f"{place} is no entry of a journal: give the file as the hub has exported it") from None


def line_of(entry: JournalLine | Hidden) -> str:
    return canonical(entry._asdict())


def checked(entries: Iterable[JournalLine | Hidden]) -> Iterator[JournalLine | Hidden]:
    """The same entries, as far as each follows from those before it; a LedgerError tells the first that does not."""
    replay = JournalReplay()
    for entry in entries:
        if fault := replay.take(entry):
            raise LedgerError(fault)
        yield entry
