"""Writing to the journal: every entry in one place, under one lock, once for each key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from databazaar.client.journal import Entry, fault_of, sealed
from databazaar.ledger.chain import canonical
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Account, Job, JournalEntry, JournalHead, Organisation, Posting
from databazaar.service.errors import ConflictError, ServiceError

Says = tuple[str, str | None, dict[str, int], dict[str, Any]]
MOST = 10**18
"""No balance goes further from zero: a column holds 64 bits."""


class JournalError(ServiceError):
    """The hub tried to write what no journal may hold: a mistake of ours, and nothing was written."""

    status = 500


@dataclass(frozen=True)
class Transfer:
    """What is to be posted. Postings of zero are left out, so that a fee of nothing needs no case of its own."""

    kind: str
    key: str
    postings: Mapping[str, int]
    job_id: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def says(self) -> Says:
        """What a repeated one must say again. The body as it comes back from a database."""
        moved = {account: amount for account, amount in self.postings.items() if amount}
        return self.kind, self.job_id, moved, json.loads(canonical(dict(self.body)))


def post(
    session: Session,
    kind: str,
    key: str,
    postings: Mapping[str, int],
    *,
    job_id: str | None = None,
    body: Mapping[str, Any] | None = None,
) -> JournalEntry:
    """Writes one entry, in the session's transaction.

    The same again gives the entry that is there; another content under a used key is a ConflictError, and so is what
    would make a balance negative. From here to the end of the transaction nobody else writes: lock or change your own
    rows before you post, so that all queue in one order and none can deadlock.
    """
    return post_all(session, [Transfer(kind, key, postings, job_id, body or {})])[0]


def post_all(session: Session, transfers: Sequence[Transfer]) -> list[JournalEntry]:
    """Writes several, in their order, all or none of them: much faster than one by one."""
    head = lock(session)
    known = _known(session, [transfer.key for transfer in transfers])
    said = [transfer.says for transfer in transfers]
    accounts = _accounts(session, {account for _, _, moved, _ in said for account in moved})
    balances = {name: account.balance for name, account in accounts.items()}
    seq, hash, moment = head.seq, head.hash, now()
    answers, new, postings = [], [], []
    for transfer, says in zip(transfers, said, strict=True):
        kind, job_id, moved, body = says
        if transfer.key in known:
            entry, before = known[transfer.key]
            if before != says:
                raise ConflictError(f"{transfer.key} is in the journal with another content: use a key of its own")
            answers.append(entry)
            continue
        if fault := fault_of(kind, transfer.key, job_id, moved):
            raise JournalError(f"{transfer.key} cannot be posted: {fault}")
        for account, amount in moved.items():
            balances[account] += amount
        _refuse(transfer.key, moved, balances, accounts)
        seq, salt = seq + 1, secrets.token_hex(16)
        content = Entry(seq, kind, transfer.key, job_id, moment.isoformat(timespec="microseconds"), moved, body, salt)
        hash = sealed(hash, content.content)
        entry = JournalEntry(
            seq=seq, kind=kind, key=transfer.key, job_id=job_id, body=body, at=moment, salt=salt, hash=hash
        )
        known[transfer.key] = entry, says
        answers.append(entry)
        new.append(entry)
        postings += [{"seq": seq, "account": account, "amount": amount} for account, amount in moved.items()]
    if new:
        _write(session, head, new, postings, accounts, balances)
    return answers


def lock(session: Session) -> JournalHead:
    """Waits until nobody else writes to the journal, and keeps others from it until the transaction ends."""
    return session.get_one(JournalHead, 1, with_for_update=True, populate_existing=True)


def _known(session: Session, keys: Sequence[str]) -> dict[str, tuple[JournalEntry, Says]]:
    """What is there under these keys, with what each says."""
    entries = session.scalars(select(JournalEntry).where(JournalEntry.key.in_(keys))).all()
    moved: dict[int, dict[str, int]] = {entry.seq: {} for entry in entries}
    if entries:
        for posting in session.execute(select(Posting).where(Posting.seq.in_(moved))).scalars():
            moved[posting.seq][posting.account] = posting.amount
    return {entry.key: (entry, (entry.kind, entry.job_id, moved[entry.seq], entry.body)) for entry in entries}


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


def _write(
    session: Session,
    head: JournalHead,
    new: Sequence[JournalEntry],
    postings: Sequence[Mapping[str, Any]],
    accounts: Mapping[str, Account],
    balances: Mapping[str, int],
) -> None:
    for name, account in accounts.items():
        account.balance = balances[name]
    head.seq, head.hash = new[-1].seq, new[-1].hash
    session.add_all(accounts.values())
    session.add_all(new)
    session.flush()
    session.execute(insert(Posting), list(postings))
