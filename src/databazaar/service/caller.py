"""Who asks: an organisation, perhaps a person of it, and what they may do. Every command of the service takes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service.database.tables import Organisation, Owned
from databazaar.service.errors import DeniedError, MissingError

Scope = Literal["read", "jobs", "offers", "money", "operate"]
Row = TypeVar("Row", bound=Owned)
SCOPES: tuple[Scope, ...] = ("read", "jobs", "offers", "money", "operate")


@dataclass(frozen=True)
class Caller:
    """`scopes` are those of the token; a person who has signed in has all that the organisation's roles allow."""

    organisation_id: str
    slug: str
    operates: bool
    consumes: bool
    provides: bool
    scopes: frozenset[str]
    person_id: str | None = None
    token_id: str | None = None

    @classmethod
    def of(
        cls,
        organisation: Organisation,
        scopes: frozenset[str] | None = None,
        person_id: str | None = None,
        token_id: str | None = None,
    ) -> Caller:
        roles = organisation.operates, organisation.consumes, organisation.provides
        allowed = allowed_scopes(*roles)
        granted = allowed if scopes is None else scopes & allowed
        return cls(organisation.id, organisation.slug, *roles, granted, person_id, token_id)

    @property
    def sees_all(self) -> bool:
        """Whether it may look at everybody's: the operator, with that right. A token that only reads sees its own."""
        return self.operates and "operate" in self.scopes

    def require(self, scope: Scope) -> None:
        if scope not in self.scopes:
            raise DeniedError(f"this needs the right {scope!r}: use a token or an account that has it")

    def require_operator(self) -> None:
        if not self.operates:
            raise DeniedError("only the market's operator may do this")
        self.require("operate")

    def require_consumer(self) -> None:
        if not self.consumes:
            raise DeniedError("only a consumer may do this: ask the operator for that role")
        self.require("jobs")

    def require_provider(self) -> None:
        if not self.provides:
            raise DeniedError("only a provider may do this: ask the operator for that role")
        self.require("offers")


def own_row(session: Session, caller: Caller, table: type[Row], id: str, missing: str, lock: bool = False) -> Row:
    """A row of the caller's organisation, locked until the transaction ends if `lock`; or a MissingError."""
    query = select(table).where(table.id == id, table.organisation_id == caller.organisation_id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    row = session.scalar(query)
    if row is None:
        raise MissingError(missing)
    return row


def allowed_scopes(operates: bool, consumes: bool, provides: bool) -> frozenset[str]:
    """What the roles of an organisation allow at the most."""
    allowed = {"read"}
    allowed |= {"operate", "money"} if operates else set()
    allowed |= {"jobs", "money"} if consumes else set()
    allowed |= {"offers", "money"} if provides else set()
    return frozenset(allowed)
