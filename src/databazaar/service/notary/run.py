"""A run whose arbiter is its consumer's own: the hub checks every entry, and keeps it before it answers.

The ledger here ends in its opening, in a round that is reserved in full, or in the close: consumers send what their own
ledgers write in one step. So there is one round under way at the most, and `RoundReplies` knows its answers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from numpy.typing import NDArray
from pydantic import Field

from databazaar.codes import QUARANTINED, Code
from databazaar.errors import BazaarError, LedgerError
from databazaar.federation.frames import decode_bundle, encode_bundle
from databazaar.files import read_plain, write_whole
from databazaar.ledger import Audit, Due, Entry, Ledger, Notary, RuleBook, Settlement, Snapshot
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.chain import Kind
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.hub.progress import ProgressLog
from databazaar.vectors import pack

_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, Field(max_length=200)]
_Fields = tuple[_Number, Kind, _Number | None, _Number | None, _Name | None, _Number | None, dict[str, Any], _Hash]
Line = Annotated[_Fields, Field(strict=False)]
"""An entry as it travels, with the types that a ledger writes: seq, kind, round, draw, provider, amount, body, hash."""


def entries_of(lines: Iterable[Line]) -> list[Entry]:
    """
    >>> entries_of([(4, "round", 0, None, None, None, {}, "0" * 64)])[0].kind
    'round'
    >>> entries_of([(4, "round", 0, 1, None, None, {}, "0" * 64)])
    Traceback (most recent call last):
    databazaar.service.errors.InvalidError: entry 4 (round, round 0, draw 1): has not what an entry of its kind has
    """
    entries = [Entry(*line) for line in lines]
    for entry in entries:
        if not entry.well_formed:
            raise InvalidError(f"{entry}: has not what an entry of its kind has")
    return entries


REPLIES = "replies.bin"
LARGEST = 8 * 2**30


@dataclass(frozen=True)
class RoundReplies:
    """`answers` are the valid replies of a round, as they were passed on, and `failures` why others have none, by the
    ledger's codes. `question` is the hash of the one question that the round asks; empty where none was asked yet."""

    round: int = -1
    question: str = ""
    answers: dict[str, bytes] = field(default_factory=dict)
    failures: dict[str, Code] = field(default_factory=dict)

    def of_round(self, round: int) -> RoundReplies:
        """What was passed on in this round."""
        return self if self.round == round else RoundReplies(round)

    def with_answers(self, question: str, answers: dict[str, bytes], failures: dict[str, Code]) -> RoundReplies:
        """With these too; who has given a valid answer once has given it."""
        answers = {**answers, **self.answers}
        failures = {who: why for who, why in {**self.failures, **failures}.items() if who not in answers}
        return replace(self, question=question, answers=answers, failures=failures)

    def keep(self, folder: Path) -> None:
        """For good, before anybody gets an answer."""
        failures = {who: code.body() for who, code in self.failures.items()}
        header = {"round": self.round, "question": self.question, "failures": failures}
        write_whole(folder / REPLIES, encode_bundle(header, self.answers), 0o600)

    @classmethod
    def kept(cls, folder: Path) -> RoundReplies:
        try:
            header, answers = decode_bundle(read_plain(folder / REPLIES, most=LARGEST))
            failures = {who: Code.read(body) for who, body in header["failures"].items()}
            return cls(header["round"], header["question"], answers, failures)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError):
            raise BazaarError(f"{folder / REPLIES} cannot be read: put the old file back") from None


GONE = Code("arbiter-gone")
"""Why somebody who was drawn, and never asked, is not paid."""


@dataclass(frozen=True)
class _Standing:
    """The last model that the consumer has reported."""

    round: int
    model_hash: str
    utility: float
    loss: float | None
    state: NDArray[Any]

    def snapshot(self) -> Snapshot:
        return Snapshot(self.round, pack({"sampler": self.state}), b"")


def close_for(store: SqlStore, notary: Notary, replies: RoundReplies) -> None:
    """Writes the rest of the run. A crash leaves a ledger that ends in a reserved round, and can be closed again."""
    audit = notary.audit
    assert audit.terms is not None and audit.state is not None and audit.model is not None
    rules, state = RuleBook.of(audit.terms), audit.state
    ledger = Ledger(rules, store)
    utility, loss = (0.0, None) if audit.scores is None else audit.scores.ended
    standing = _Standing(audit.rounds, audit.model, utility, loss, state)
    if replies.answers:
        standing = _settle(rules, ledger, replies, standing)
        stopped = rules.stopped(ledger.book)
        if stopped is not None:
            ledger.close(stopped, standing)
            return
        ledger.reserve(standing.round, rules.draw(standing.state, ledger.book))
    ledger.close_for_consumer(standing.model_hash, standing.utility, standing.loss)


def _settle(rules: RuleBook, ledger: Ledger, replies: RoundReplies, standing: _Standing) -> _Standing:
    """Posts every valid answer of the round under way, and voids the others."""
    drawn = rules.draw(standing.state, ledger.book)
    ids = rules.terms.roster.ids
    asked = [ids[i] for i in drawn.draws.tolist()]
    gains = [0.0 if who in replies.answers else None for who in asked]
    failures = [None if who in replies.answers else replies.failures.get(who, GONE) for who in asked]
    probabilities = drawn.probabilities.tolist()
    settled = rules.settle(standing.state, drawn, gains, probabilities)
    after = _Standing(standing.round + 1, standing.model_hash, standing.utility, standing.loss, settled.state)
    reached = standing.utility, standing.loss
    result = Settlement(gains, failures, probabilities, settled.paid, *reached, *reached)
    ledger.settle(standing.round, drawn, result, after)
    return after


OWN = {"arbiter": "own"}
"""What run.json says of such a run, whose models are nowhere at the hub."""
REMEMBERED = 20_000
"""The hashes of so many entries are at hand, for a client that sends them again."""
MOST_ENTRIES = 20_000
"""Entries that are taken in one step."""
TOLERATED = 3
"""After so many failures on end somebody who was drawn need not be asked (engines/quarantine.py)."""
NOT_ASKED = "was not asked through this hub in round"


class NotarisedRun:
    """For one thread at a time. Use `begin` for a run that has no folder yet."""

    alive: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self.folder, self._place = RunFolder(path), path.parent
        with ExitStack() as opened:
            opened.callback(self.folder.dispose)
            self.store: SqlStore = self.folder.store()
            self._log = opened.enter_context(closing(ProgressLog(self._place)))
            self._read()
            self._opened = opened.pop_all()

    @classmethod
    def begin(cls, path: Path, id: str, title: str) -> NotarisedRun:
        """In a folder as every run has one: it may be there already, from an attempt that did not come far."""
        if not path.exists():
            RunFolder.create(path, {"id": id, "title": title, **OWN})
        return cls(path)

    def _read(self) -> None:
        self.notary = Notary()
        self._hashes: deque[str] = deque(maxlen=REMEMBERED)
        self._failing: Counter[str] = Counter()
        for line in _taken(self.notary, map(self._noted, self.store.entries())):
            self._log.add(line)
        self.replies = RoundReplies.kept(self._place).of_round(self.audit.rounds)

    def _noted(self, entry: Entry) -> Entry:
        self._hashes.append(entry.hash)
        if entry.settles:
            self._failing[entry.provider or ""] = 0 if entry.posts else self._failing[entry.provider or ""] + 1
        return entry

    @property
    def audit(self) -> Audit:
        return self.notary.audit

    @property
    def due(self) -> Due:
        return self.notary.due

    def take(self, entries: Sequence[Entry]) -> int:
        """Checks these and keeps them; how many were new. Those that are here already are passed over, others in
        their place are refused, and so is whatever does not follow: then nothing of it has happened."""
        new = self._new(entries)
        if not new:
            return 0
        self._refuse_other_accesses(new)
        try:
            lines = list(_taken(ahead := self.notary.after(()), new))
        except LedgerError as refused:
            raise InvalidError(f"the hub refuses what does not follow: {refused}") from None
        audit = ahead.audit
        if not (audit.closed or ahead.due.reserved or audit.entries == 1):
            raise InvalidError(
                "these entries end in the middle of a round: send a round together with the reservations of the next, "
                "or with the close, as a ledger writes them"
            )
        state = None
        if audit.state is not None and audit.rounds > self.audit.rounds:
            state = Snapshot(audit.rounds, pack({"sampler": audit.state}), b"")
        self.store.append(new, state)
        if not self.audit.entries:
            self.folder.note_begun(audit.opening)
        self.notary, self.replies = ahead, self.replies.of_round(audit.rounds)
        for entry in new:
            self._noted(entry)
        for line in lines:
            self._log.add(line)
        return len(new)

    def _new(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        if not 0 < len(entries) <= MOST_ENTRIES:
            raise InvalidError(f"send between 1 and {MOST_ENTRIES} entries at a time")
        first, known = entries[0].seq, self.audit.entries
        if type(first) is not int or not 0 <= first <= known:
            raise ConflictError(f"the hub has {known} entries of this run: send those from entry {known} on")
        oldest = known - len(self._hashes)
        for entry in entries[: known - first]:
            if entry.seq < oldest or entry.hash != self._hashes[entry.seq - oldest]:
                raise ConflictError(
                    f"entry {entry.seq} is not the one that the hub has had before: what was reported stays, so go on "
                    "from the folder that it was reported from"
                )
        if self.audit.closed and known - first < len(entries):
            raise ConflictError("the run is closed at the hub, and takes nothing more")
        return entries[known - first :]

    def _refuse_other_accesses(self, entries: Sequence[Entry]) -> None:
        """Whom the hub has passed a valid answer on from is paid; whom it has not, is not."""
        failing = Counter(self._failing)
        for entry in entries:
            who, replies = entry.provider or "", self.replies.of_round(entry.round if entry.round is not None else -1)
            if entry.posts:
                if who not in replies.answers:
                    raise InvalidError(f"{entry}: {who} {NOT_ASKED} {entry.round}, or did not answer: it is not paid")
                failing[who] = 0
            elif entry.settles:
                self._refuse_other_void(entry, who, replies, failing[who])
                failing[who] += 1

    @staticmethod
    def _refuse_other_void(entry: Entry, who: str, replies: RoundReplies, failing: int) -> None:
        if who in replies.answers or (entry.body == NOT_SETTLED and replies.answers):
            raise InvalidError(
                f"{entry}: {', '.join(sorted(replies.answers))} gave valid updates in this round, which are paid: "
                "report the round, or stop the job, and the hub settles it"
            )
        if entry.body == NOT_SETTLED:
            return
        reason = entry.reason
        if who in replies.failures:
            if reason != replies.failures[who]:
                raise InvalidError(f"{entry}: {who} failed because of {replies.failures[who].body()}: say so")
        elif reason != QUARANTINED or failing < TOLERATED:
            raise InvalidError(f"{entry}: {who} {NOT_ASKED} {entry.round}: ask it, then say what came of it")

    def refuse_ask(self, names: Sequence[str], question: str) -> None:
        """An update is asked of those whom the round under way has drawn, and with one question."""
        due = self.due
        if not due.reserved:
            raise ConflictError("no round is reserved: send the entries that reserve it, then ask")
        others = [name for name in names if name not in due.asked]
        if others:
            raise InvalidError(f"{others[0]} is not drawn in round {due.round}: ask {', '.join(due.asked)} alone")
        if self.replies.question not in ("", question):
            raise ConflictError(
                f"round {due.round} was asked already with other parameters: one question is all that a round buys"
            )

    def pass_on(self, question: str, answers: dict[str, bytes], failures: dict[str, Code]) -> None:
        self.replies = self.replies.with_answers(question, answers, failures)
        self.replies.keep(self._place)

    def close(self) -> bool:
        """Ends the run for a consumer who has had enough of it, or has gone: each valid answer is paid.
        False where no round is settled and none will be: nobody is paid then, and there is nothing to close."""
        if not self.audit.closed and self.audit.entries and (self.audit.rounds or self.replies.answers):
            close_for(self.store, self.notary, self.replies)
            self._read()
        return self.audit.closed

    def dispose(self) -> None:
        self._opened.close()


def _taken(notary: Notary, entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Lets the notary take entries; what the progress log says of each round that they end."""
    audit = notary.audit
    before = {} if audit.book is None else dict(audit.book.pay)
    for entry in entries:
        notary.take(entry)
        audit = notary.audit
        if entry.ends_round and audit.book is not None and audit.scores is not None:
            book, (utility, loss) = audit.book, audit.scores.ended
            told = {"round": audit.rounds, "spent": book.spent, "asked": book.asked, "budget": book.budget}
            paid = [who for who, pay in book.pay.items() if pay > before.get(who, 0)]
            yield {**told, "utility": utility, "loss": loss, "paid": paid, "flagged": []}
            before = dict(book.pay)


def is_notarised(folder: RunFolder) -> bool:
    return OWN.items() <= folder.recipe.items()


def close_notarised(path: Path) -> None:
    """Closes the run of a consumer's own arbiter where it is open, by its folder alone."""
    run = NotarisedRun(path)
    try:
        run.close()
    finally:
        run.dispose()
