"""The audit of the journal: everything that the balances follow from, gone through once, in order."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.journal import Replay
from databazaar.service.database.tables import Account, JournalHead
from databazaar.service.journal.exporting import stored


@dataclass(frozen=True)
class JournalAudit:
    """What an audit found. `message` is the first thing that is broken, or what was gone through."""

    ok: bool
    entries: int
    head: str
    message: str
    postings: int = 0


def audit(session: Session) -> JournalAudit:
    """Replays the whole journal: its chain, its sums, its balances, and which kinds of entries touch which accounts.

    Best in a `database.read()`, which keeps nobody waiting.
    """
    replay, fault = Replay(), None
    with closing(stored(session)) as entries:
        for entry in entries:
            if fault := replay.take(entry):
                break
    fault = fault or _loose_end(session, replay)
    count = replay.seq + 1
    said = f"{count} entries and {replay.postings} postings replayed, all as recorded; the books sum to zero"
    return JournalAudit(fault is None, count, replay.head, fault or said, replay.postings)


def _loose_end(session: Session, replay: Replay) -> str | None:
    """What does not agree with the end that the entries have come to."""
    head = session.execute(select(JournalHead.seq, JournalHead.hash)).all()
    if [tuple(row) for row in head] != [(replay.seq, replay.head)]:
        return f"the journal's head is not its entry {replay.seq}: entries were removed, or added past it"
    kept = {row.name: row.balance for row in session.execute(select(Account.name, Account.balance))}
    for name in sorted({*kept, *replay.balances}):
        follows = replay.balances.get(name, 0)
        if kept.get(name) != follows and (follows or name in kept):
            return f"{name} stands at {kept.get(name)}, and {follows} follows from the journal"
    return None
