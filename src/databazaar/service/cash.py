"""Money that comes in and goes out: records of it, and a cashier who says when it has. We hold no money.

The operator takes deposits to its own bank account and pays out from there. Here stands only that it was
asked for and that the operator, or a cashier for it, has confirmed or refused it; a confirmed record is in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.registry import Registry
from databazaar.service import journal
from databazaar.service.caller import Caller
from databazaar.service.database.tables import CashRecord, Organisation, new_id, now
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.settings import Settings

CashKind = Literal["deposit", "payout", "withdraw"]
CashState = Literal["requested", "done", "refused"]
MOST, MOST_RECORDS = 10**15, 100_000
CASHIERS = Registry("cashier", {"manual": "databazaar.service.cash:Manual", "test": "databazaar.service.cash:Test"})
"""Who confirms records. Packages add theirs as entry points under `databazaar.cashiers`."""


class Cashier(Protocol):
    """`reference` is asked when a record is made: the reference of what has happened already, or None to wait for
    `confirm` or `refuse`. It is asked inside the transaction, which may yet come to nothing: it must move no money
    itself. One that does so asks for the open `records` and confirms them by their ids."""

    kind: ClassVar[str]

    def reference(self, record: CashRecord) -> str | None: ...


@dataclass(frozen=True)
class Manual:
    """A person of the operator looks at the bank account, and confirms or refuses."""

    kind: ClassVar[str] = "manual"

    def reference(self, record: CashRecord) -> str | None:
        return None


@dataclass(frozen=True)
class Test:
    """Everything has happened at once. For demonstrations and tests: its money is none."""

    kind: ClassVar[str] = "test"
    __test__: ClassVar[bool] = False

    def reference(self, record: CashRecord) -> str | None:
        return "test money"


def request(session: Session, caller: Caller, settings: Settings, kind: CashKind, amount: int) -> CashRecord:
    """The caller announces money that it brings in, or asks for pay that it has earned or for cash not spent."""
    caller.require("money")
    if type(amount) is not int or not 0 < amount <= MOST:
        said = f"the amount is {amount!r}: give a whole number of minor units between 1 and {MOST}"
        raise InvalidError(said, place="amount")
    cashier: Cashier = CASHIERS.build({"kind": settings.cash})
    if kind != "deposit":
        journal.lock(session)  # so that two who ask at once do not both get the last of it
        left = available(session, caller.slug, kind)
        if amount > left:
            raise ConflictError(f"{amount} is asked for and {left} is left to ask for: ask for less")
    record = CashRecord(
        id=new_id(),
        organisation_id=caller.organisation_id,
        kind=kind,
        state="requested",
        adapter=cashier.kind,
        amount=amount,
    )
    session.add(record)
    session.flush()
    reference = cashier.reference(record)
    return record if reference is None else _done(session, record, reference)


def available(session: Session, slug: str, kind: CashKind = "payout") -> int:
    """What an organisation can still ask for: its balance less what it has asked for and not got yet."""
    open_ones = (
        select(func.sum(CashRecord.amount))
        .join(Organisation, Organisation.id == CashRecord.organisation_id)
        .where(Organisation.slug == slug, CashRecord.kind == kind, CashRecord.state == "requested")
    )
    return journal.balance(session, _account(kind, slug)) - int(session.scalar(open_ones) or 0)


def confirm(session: Session, caller: Caller, record_id: str, reference: str = "") -> CashRecord:
    """The operator says that the money has come or gone. Again with the same reference, or none, it changes nothing."""
    caller.require_operator()
    record = _record(session, record_id)
    if record.state == "refused":
        raise ConflictError("this was refused: let the organisation ask anew")
    if record.state == "done" and reference not in ("", record.reference):
        raise ConflictError(f"this was confirmed with the reference {record.reference!r}: give that one, or none")
    return _done(session, record, reference) if record.state == "requested" else record


def refuse(session: Session, caller: Caller, record_id: str, reason: str) -> CashRecord:
    """The operator says that the money has not come, or will not go. Nobody else may: a payout may be on its way."""
    caller.require_operator()
    record = _record(session, record_id)
    if record.state == "done":
        raise ConflictError("this was confirmed, and stands in the journal: it cannot be refused any more")
    if record.state == "requested":
        record.state, record.reason, record.decided_at = "refused", _short(reason, 1000, "reason"), now()
    return record


def records(session: Session, caller: Caller, state: CashState | None = None) -> Sequence[CashRecord]:
    """Deposits and payouts, the newest first: one's own, or all for the operator."""
    caller.require("read")
    found = select(CashRecord).order_by(CashRecord.created_at.desc(), CashRecord.id).limit(MOST_RECORDS)
    if not caller.sees_all:
        found = found.where(CashRecord.organisation_id == caller.organisation_id)
    if state is not None:
        found = found.where(CashRecord.state == state)
    return session.scalars(found).all()


def _done(session: Session, record: CashRecord, reference: str) -> CashRecord:
    slug = session.get_one(Organisation, record.organisation_id).slug
    sign = 1 if record.kind == "deposit" else -1
    record.state, record.reference, record.decided_at = "done", _short(reference, 200, "reference"), now()
    session.flush()
    moved = {"outside": -sign * record.amount, _account(record.kind, slug): sign * record.amount}
    journal.post(session, record.kind, f"{record.kind}:{record.id}", moved, body={"reference": record.reference})
    return record


def _account(kind: str, slug: str) -> str:
    return journal.earned(slug) if kind == "payout" else journal.cash(slug)


def _record(session: Session, record_id: str) -> CashRecord:
    record = session.get(CashRecord, record_id, with_for_update=True, populate_existing=True)
    if record is None:
        raise MissingError("there is no such deposit or payout: look at the list")
    return record


def _short(text: str, most: int, field: str) -> str:
    if len(text) > most:
        raise InvalidError(f"the {field} has {len(text)} characters: write at most {most}")
    return text
