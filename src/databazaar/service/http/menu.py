"""The menu at the side: the pages that are open to the visitor's roles, where one is, and how much waits."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import CashRecord, Contract, Job
from databazaar.service.errors import DeniedError
from databazaar.service.states import ContractState, JobState

GROUPS = ("Operating", "Buying", "Selling", "Your organisation")
MEMBERS = "only consumers and providers keep files here"


@dataclass(frozen=True)
class MenuItem:
    """A page that its declaration puts into the menu: in which group, and at which place of it."""

    group: str
    title: str
    rank: int
    path: str
    role: str


@dataclass(frozen=True)
class Link:
    path: str
    title: str
    here: bool
    waits: int


@dataclass(frozen=True)
class MenuGroup:
    title: str
    entries: tuple[Link, ...]


def require(caller: Caller, role: str) -> None:
    """Refuses those who do not have the role, `member` being consumers and providers."""
    if role == "member" and not has_role(caller, role):
        raise DeniedError(MEMBERS)
    if role in ("operator", "consumer", "provider"):
        getattr(caller, f"require_{role}")()


def has_role(caller: Caller, role: str) -> bool:
    roles = {"operator": caller.operates, "consumer": caller.consumes, "provider": caller.provides}
    return {**roles, "member": caller.consumes or caller.provides}.get(role, True)


def menu_for(session: Session, caller: Caller, path: str, entries: list[MenuItem]) -> tuple[MenuGroup, ...]:
    shown = sorted((one for one in entries if has_role(caller, one.role)), key=lambda one: one.rank)
    inside = (one.path for one in shown if one.path == path or path.startswith(f"{one.path}/"))
    here, waits = max(inside, key=len, default=""), _waiting(session, caller)
    groups = (
        MenuGroup(
            name, tuple(Link(e.path, e.title, e.path == here, waits.get(e.path, 0)) for e in shown if e.group == name)
        )
        for name in GROUPS
    )
    return tuple(group for group in groups if group.entries)


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
