"""Reading the journal: balances, and what an organisation may see of the entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from databazaar.client.shapes import Movement
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Account, JournalEntry, Posting


@dataclass(frozen=True)
class Page:
    """One entry with all its postings, as the operator sees it."""

    entry: JournalEntry
    postings: dict[str, int]


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
    """What happened on the caller's accounts, the newest first, from before entry `before` on. Where it ends at `most`,
    the last entry may have moved more of them."""
    caller.require("read")
    fields = (
        Posting.seq,
        JournalEntry.kind,
        JournalEntry.at,
        Posting.account,
        Posting.amount,
        JournalEntry.job_id,
        JournalEntry.hash,
    )
    found = (
        select(*fields)
        .join(JournalEntry, JournalEntry.seq == Posting.seq)
        .join(Account, Account.name == Posting.account)
        .where(_own(caller))
        .order_by(Posting.seq.desc(), Posting.account)
        .limit(most)
    )
    if before is not None:
        found = found.where(Posting.seq < before)
    return [Movement(*row) for row in session.execute(found)]


def entries(session: Session, caller: Caller, *, before: int | None = None, most: int = 100) -> list[Page]:
    """The whole journal, the newest first: the operator's alone to see."""
    caller.require_operator()
    found = select(JournalEntry).order_by(JournalEntry.seq.desc()).limit(most)
    if before is not None:
        found = found.where(JournalEntry.seq < before)
    pages = {entry.seq: Page(entry, {}) for entry in session.scalars(found)}
    if pages:
        for posting in session.scalars(select(Posting).where(Posting.seq.between(min(pages), max(pages)))):
            pages[posting.seq].postings[posting.account] = posting.amount
    return list(pages.values())


def _own(caller: Caller) -> ColumnElement[bool]:
    own = Account.organisation_id == caller.organisation_id
    return or_(own, Account.organisation_id.is_(None)) if caller.sees_all else own
