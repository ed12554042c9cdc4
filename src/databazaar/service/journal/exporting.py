"""The journal as lines of JSON, which anybody checks without the hub: `databazaar.client.journal` reads them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TextIO

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client.journal import Entry, Hidden, line_of
from databazaar.service.caller import Caller
from databazaar.service.database.connection import only_reads
from databazaar.service.database.tables import JournalEntry, Posting
from databazaar.service.journal.posting import lock

_AT_ONCE = 5_000
_NO_MORE = (2**63, "", 0)


def lines(session: Session, caller: Caller) -> Iterator[str]:
    """The journal's lines: whole for the operator; for others the chain alone, without what entries say."""
    caller.require("read")
    return _lines(session, whole=caller.sees_all)


def export(session: Session, target: Path | TextIO, *, whole: bool = True) -> None:
    """Writes the journal to a file or a stream, whole or as the chain alone."""
    if isinstance(target, Path):
        with target.open("w", encoding="utf-8") as stream:
            stream.writelines(_lines(session, whole))
    else:
        target.writelines(_lines(session, whole))


def _lines(session: Session, whole: bool) -> Iterator[str]:
    for entry in stored(session):
        yield line_of(entry if whole else Hidden(entry.seq, entry.content, entry.hash)) + "\n"


def stored(session: Session) -> Generator[Entry]:
    """All entries as the database has them, of one moment: in a transaction that may write, writers wait meanwhile.

    A posting without its entry comes as an entry without a kind, which no check lets pass.
    """
    if not only_reads(session.connection()):
        lock(session)
    e, p = JournalEntry.__table__.c, Posting.__table__.c
    fields = select(e.seq, e.kind, e.key, e.job_id, e.at, e.body, e.salt, e.hash).order_by(e.seq)
    parts = select(p.seq, p.account, p.amount).order_by(p.seq)
    streamed = {"yield_per": _AT_ONCE}
    with (
        session.execute(fields, execution_options=streamed) as rows,
        session.execute(parts, execution_options=streamed) as postings,
    ):
        rest = iter(postings)
        of, account, amount = next(rest, _NO_MORE)
        for seq, kind, key, job, at, body, salt, hash in rows:
            moved = {}
            while of == seq:
                moved[account] = amount
                of, account, amount = next(rest, _NO_MORE)
            yield Entry(seq, kind, key, job, at.isoformat(timespec="microseconds"), moved, body, salt, hash)
    if of != _NO_MORE[0]:
        yield Entry(of, "", f"{account} without an entry", None, "", {account: amount}, {}, "")
