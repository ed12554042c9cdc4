"""The menu at the side: what the visitor's roles allow, where one is, and how much waits."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import CashRecord, Contract, Job
from databazaar.service.states import ContractState, JobState

BUYING = (("/market", "Offers"), ("/jobs", "Jobs"))
SELLING = (("/offers", "Offers"), ("/requests", "Requests"), ("/queue", "Queue"), ("/earnings", "Earnings"))
OPERATING = (
    ("/operator", "Overview"),
    ("/operator/organisations", "Organisations"),
    ("/operator/jobs", "Jobs"),
    ("/operator/queues", "Queues"),
    ("/operator/journal", "Journal"),
    ("/operator/cash", "Deposits and payouts"),
)


@dataclass(frozen=True)
class Entry:
    path: str
    title: str
    here: bool
    waits: int


@dataclass(frozen=True)
class Group:
    title: str
    entries: tuple[Entry, ...]


def menu_for(session: Session, caller: Caller, path: str) -> tuple[Group, ...]:
    groups: list[tuple[str, tuple[tuple[str, str], ...]]] = []
    if caller.operates:
        groups.append(("Operating", OPERATING))
    if caller.consumes:
        groups.append(("Buying", BUYING))
    if caller.provides:
        groups.append(("Selling", SELLING))
    own = [("/account", "Account"), ("/webhooks", "Webhooks")]
    if caller.consumes or caller.provides:
        own = [("/", "Overview"), ("/money", "Money"), ("/files", "Files"), *own]
    groups.append(("Your organisation", tuple(own)))
    all_paths = [entry for _, entries in groups for entry, _ in entries]
    here = max((one for one in all_paths if one == path or path.startswith(f"{one}/")), key=len, default="")
    waits = _waiting(session, caller)
    return tuple(
        Group(title, tuple(Entry(one, words, one == here, waits.get(one, 0)) for one, words in entries))
        for title, entries in groups
    )


def _waiting(session: Session, caller: Caller) -> dict[str, int]:
    """What the visitor has yet to decide, by the page where it is decided."""
    found = {}
    if caller.operates:
        found["/operator/cash"] = select(func.count()).where(CashRecord.state == "requested")
    if caller.provides:
        found["/requests"] = select(func.count()).where(
            Contract.provider_id == caller.organisation_id, Contract.state == ContractState.REQUESTED
        )
    if caller.consumes:
        found["/jobs"] = select(func.count()).where(
            Job.organisation_id == caller.organisation_id, Job.state == JobState.AGREED
        )
    return {path: session.scalar(query) or 0 for path, query in found.items()}
