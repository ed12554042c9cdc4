"""Money across jobs: one double-entry journal, chained by hash, append-only, with one lock on its head.

Accounts are `cash:SLUG` (an organisation's money at the market), `escrow:JOB`, `earned:SLUG` (a provider's pay), `fees`
(the operator's) and `outside` (the world, which alone may be negative). The market holds no money: it keeps books.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from databazaar.canonical import canonical, chained
from databazaar.client.journal import Hidden, JournalLine, JournalReplay, fault_of, line_of
from databazaar.client.shapes import Audit, Movement, OperatorEntry
from databazaar.service.caller import Caller
from databazaar.service.database.connection import only_reads
from databazaar.service.database.tables import Account, Job, JournalEntry, JournalHead, Organisation, Posting, now
from databazaar.service.errors import ConflictError, ServiceError

MOST = 10**18
"""No balance goes further from zero: a column holds 64 bits."""


class JournalError(ServiceError):
    """The hub tried to write what no journal may hold: a mistake of ours, and nothing was written."""

    status = 500


def post(
    session: Session,
    kind: str,
    key: str,
    postings: Mapping[str, int],
    *,
    job_id: str | None = None,
    body: Mapping[str, Any] | None = None,
) -> JournalEntry:
    """Writes one entry in the session's transaction; postings of zero are left out. Repeating it returns the same
    entry; other content under its key, or a negative balance, is a ConflictError. Until the transaction ends nobody
    else writes: lock or change your own rows before you post, so that all queue in one order and none can deadlock."""
    head = lock(session)
    moved = {account: amount for account, amount in postings.items() if amount}
    written = json.loads(canonical(dict(body or {})))  # as it comes back from a database
    known = session.scalar(select(JournalEntry).where(JournalEntry.key == key))
    if known is not None:
        rows = session.execute(select(Posting.account, Posting.amount).where(Posting.seq == known.seq)).all()
        if (known.kind, known.job_id, dict(rows), known.body) != (kind, job_id, moved, written):
            raise ConflictError(f"{key} is in the journal with another content: use a key of its own")
        return known
    accounts = _accounts(session, moved)
    if fault := fault_of(kind, key, job_id, moved):
        raise JournalError(f"{key} cannot be posted: {fault}")
    balances = {name: accounts[name].balance + amount for name, amount in moved.items()}
    _refuse(key, moved, balances, accounts)
    seq, salt, at = head.seq + 1, secrets.token_hex(16), now()
    line = JournalLine(seq, kind, key, job_id, at.isoformat(timespec="microseconds"), moved, written, salt)
    hash = chained(head.hash, line.content)
    entry = JournalEntry(seq=seq, kind=kind, key=key, job_id=job_id, body=written, at=at, salt=salt, hash=hash)
    for name, balance in balances.items():
        accounts[name].balance = balance
    head.seq, head.hash = seq, hash
    session.add_all([*accounts.values(), entry])
    session.flush()
    session.add_all(Posting(seq=seq, account=account, amount=amount) for account, amount in moved.items())
    session.flush()
    return entry


def lock(session: Session) -> JournalHead:
    """Waits until nobody else writes to the journal, and keeps others from it until the transaction ends."""
    return session.get_one(JournalHead, 1, with_for_update=True, populate_existing=True)


def _accounts(session: Session, names: Iterable[str]) -> dict[str, Account]:
    """The accounts as they are now that the head is held; those that are new belong to no session yet."""
    found = select(Account).where(Account.name.in_(names)).execution_options(populate_existing=True)
    accounts = {account.name: account for account in session.scalars(found)}
    for name in names:
        if name not in accounts:
            accounts[name] = Account(name=name, organisation_id=_owner(session, name), balance=0)
    return accounts


def _owner(session: Session, name: str) -> str:
    sort, _, whose = name.partition(":")
    if sort == "escrow":
        owner = session.scalar(select(Job.organisation_id).where(Job.id == whose))
    elif sort in ("cash", "earned"):
        owner = session.scalar(select(Organisation.id).where(Organisation.slug == whose))
    else:
        owner = None
    if owner is None:
        raise JournalError(f"there is nobody whose account {name!r} could be")
    return owner


def _refuse(key: str, moved: Mapping[str, int], balances: Mapping[str, int], accounts: Mapping[str, Account]) -> None:
    """What a transfer must leave behind, beside what `fault_of` asks of it alone."""
    for account, amount in moved.items():
        left = balances[account]
        if left < 0 and account != "outside":
            raise ConflictError(f"{account} holds {left - amount} and cannot give {-amount}: bring in more first")
        if abs(left) > MOST:
            raise ConflictError(f"{account} would hold more than any account can: ask for less")
        if left and account.startswith("escrow:") and amount < 0:
            raise JournalError(f"{key} cannot be posted: it would leave {left} in the escrow")
    locked_for = {accounts[name].organisation_id for name in moved if name.startswith(("escrow:", "cash:"))}
    if key.startswith(("fund:", "close:")) and len(locked_for) != 1:
        raise JournalError(f"{key} cannot be posted: it is between two organisations' cash and escrow")


def cash(slug: str) -> str:
    """The account of an organisation's money at the market."""
    return f"cash:{slug}"


def earned(slug: str) -> str:
    """The account of a provider's pay."""
    return f"earned:{slug}"


def escrow(job_id: str) -> str:
    """The account of what is locked for a job."""
    return f"escrow:{job_id}"


def balance(session: Session, account: str) -> int:
    """What an account holds, in minor units; one that was never used holds nothing."""
    return session.scalar(select(Account.balance).where(Account.name == account)) or 0


def accounts_of(session: Session, caller: Caller) -> Sequence[Account]:
    """The caller's own accounts; for the operator also the fees and the world outside."""
    caller.require("read")
    own = select(Account).where(_own(caller)).order_by(Account.name)
    return session.scalars(own.execution_options(populate_existing=True)).all()


def statement(session: Session, caller: Caller, *, before: int | None = None, most: int = 100) -> list[Movement]:
    """Movements on the caller's accounts, the newest first, before entry `before`; the last entry may be cut at
    `most`."""
    caller.require("read")
    entry = JournalEntry
    found = (
        select(Posting.seq, entry.kind, entry.at, Posting.account, Posting.amount, entry.job_id, entry.hash)
        .join(JournalEntry, JournalEntry.seq == Posting.seq)
        .join(Account, Account.name == Posting.account)
        .where(_own(caller))
        .order_by(Posting.seq.desc(), Posting.account)
        .limit(most)
    )
    if before is not None:
        found = found.where(Posting.seq < before)
    return [Movement.of(row) for row in session.execute(found)]


def entries(session: Session, caller: Caller, *, before: int | None = None, most: int = 100) -> list[OperatorEntry]:
    """The whole journal, the newest first: the operator's alone to see."""
    caller.require_operator()
    found = select(JournalEntry).order_by(JournalEntry.seq.desc()).limit(most)
    if before is not None:
        found = found.where(JournalEntry.seq < before)
    shown = {entry.seq: OperatorEntry.of(entry, postings={}) for entry in session.scalars(found)}
    if shown:
        for posting in session.scalars(select(Posting).where(Posting.seq.between(min(shown), max(shown)))):
            shown[posting.seq].postings[posting.account] = posting.amount
    return list(shown.values())


def _own(caller: Caller) -> ColumnElement[bool]:
    own = Account.organisation_id == caller.organisation_id
    return or_(own, Account.organisation_id.is_(None)) if caller.sees_all else own


_AT_ONCE = 5_000
_NO_MORE = (2**63, "", 0)


def lines(session: Session, caller: Caller) -> Iterator[str]:
    """The journal's lines: whole for the operator; for others the chain alone, without what entries say."""
    caller.require("read")
    return exported(session, whole=caller.sees_all)


def exported(session: Session, whole: bool = True) -> Iterator[str]:
    """The journal as lines of JSON, which anybody checks without the hub: `databazaar.client.journal` reads them."""
    for entry in stored(session):
        yield line_of(entry if whole else Hidden(entry.seq, entry.content, entry.hash)) + "\n"


def stored(session: Session) -> Generator[JournalLine]:
    """All entries of one moment; in a transaction that may write, writers wait. A posting without its entry comes as an
    entry without a kind, which no check lets pass."""
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
            yield JournalLine(seq, kind, key, job, at.isoformat(timespec="microseconds"), moved, body, salt, hash)
    if of != _NO_MORE[0]:
        yield JournalLine(of, "", f"{account} without an entry", None, "", {account: amount}, {}, "")


def audit(session: Session) -> Audit:
    """Replays the whole journal: chain, sums, balances, and which kinds of entries touch which accounts. It tells the
    first thing that is broken, or what was gone through."""
    replay, fault = JournalReplay(), None
    with closing(stored(session)) as entries:
        for entry in entries:
            if fault := replay.take(entry):
                break
    fault = fault or _loose_end(session, replay)
    count = replay.seq + 1
    said = f"{count} entries and {replay.postings} postings replayed, all as recorded; the books sum to zero"
    return Audit(ok=fault is None, entries=count, head=replay.head, message=fault or said)


def _loose_end(session: Session, replay: JournalReplay) -> str | None:
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
