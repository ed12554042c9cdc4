"""Offers: datasets that providers put up, at the hub or at a site of the federation, under terms of their own.

What is shown of the data is the names and kinds of columns and how many rows there are; never a value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from databazaar.service import files
from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Offer, OfferVersion, Organisation
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from databazaar.service.wording import prose, slug_of, visible

LONGEST_SLUG, LONGEST_DESCRIPTION = 60, 4000
MOST_COLUMNS = 10_000
KINDS = ("number", "date", "category", "text", "empty")
_MISSING = "there is no such offer: look at the list of offers"


@dataclass(frozen=True)
class Listing:
    """What a consumer sees of an offer. `terms` are the policy without the names of other consumers."""

    id: str
    slug: str
    name: str
    description: str
    kind: str
    provider: str
    provider_name: str
    price: int
    terms: dict[str, Any]
    version: int
    rows: int | None
    columns: list[dict[str, Any]]
    created_at: dt.datetime


def make_file_offer(
    session: Session,
    caller: Caller,
    settings: Settings,
    *,
    name: str,
    slug: str,
    description: str,
    policy: Policy | Mapping[str, Any],
    file_id: str,
) -> Offer:
    """Offers a table that the provider has uploaded."""
    caller.require_provider()
    policy = read_policy(policy)
    if policy.epsilon is not None or policy.epsilon_per_consumer is not None:
        raise InvalidError("only a site keeps count of ε, as it answers with noise: offer a site, or leave ε out")
    offer = _new(session, caller, name, slug, description, policy, "file")
    _file_version(session, caller, settings, offer, file_id)
    return offer


def make_site_offer(
    session: Session,
    caller: Caller,
    settings: Settings,
    *,
    name: str,
    slug: str,
    description: str,
    policy: Policy | Mapping[str, Any],
    site: str,
    columns: Sequence[Mapping[str, Any]],
    rows: int | None = None,
) -> Offer:
    """Offers what a site of the federation has; its columns are what the provider says of it.

    The site is known to the federation under the offer's slug, which begins with the organisation's: so nobody offers
    another's site.
    """
    caller.require_provider()
    if settings.federation is None:
        raise ConflictError("this market has no federation: offer a file, or ask its operator for one")
    offer = _new(session, caller, name, slug, description, read_policy(policy), "site", site)
    if site != offer.slug:
        raise InvalidError(f"site = {site[:60]!r} must be {offer.slug!r}, as the offer is: let it join under that name")
    shown = [_column(column, place) for place, column in enumerate(columns)]
    _refuse_many(shown)
    session.add(OfferVersion(offer_id=offer.id, number=1, rows=rows, columns=shown))
    session.flush()
    return offer


def _new(
    session: Session,
    caller: Caller,
    name: str,
    slug: str,
    description: str,
    policy: Policy,
    kind: str,
    site: str | None = None,
) -> Offer:
    own = slug if slug.startswith(f"{caller.slug}-") else f"{caller.slug}-{slug}"
    offer = Offer(
        organisation_id=caller.organisation_id,
        slug=slug_of(own, "slug", LONGEST_SLUG),
        name=visible(name, "name"),
        description=prose(description, "description", LONGEST_DESCRIPTION),
        kind=kind,
        site=site,
        policy=policy.model_dump(mode="json"),
    )
    session.add(offer)
    try:
        session.flush()
    except IntegrityError:
        raise ConflictError(f"an offer {own!r} is there already: choose another slug") from None
    return offer


def read_policy(given: Policy | Mapping[str, Any]) -> Policy:
    """A policy, or one sentence that says what is wrong with it."""
    if isinstance(given, Policy):
        return given
    try:
        return Policy.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "policy"
        raise InvalidError(f"policy: {place[:60]}: {first['msg']}: correct it") from None


def _column(given: Mapping[str, Any], place: int) -> dict[str, Any]:
    name, kind = given.get("name"), given.get("kind")
    if not isinstance(name, str) or kind not in KINDS:
        raise InvalidError(f"columns[{place}] must have a name, and a kind out of {', '.join(KINDS)}: correct it")
    return {"name": visible(name, f"columns[{place}].name", 1000), "kind": kind}


def _refuse_many(columns: Sequence[object]) -> None:
    if not 1 <= len(columns) <= MOST_COLUMNS:
        raise InvalidError(f"an offer has 1 to {MOST_COLUMNS:,} columns, not {len(columns):,}: leave some out")


def _file_version(session: Session, caller: Caller, settings: Settings, offer: Offer, file_id: str) -> OfferVersion:
    file = files.own_file(session, caller, file_id)
    outline = files.outline(files.path_of(settings, file), file.name)
    _refuse_many(outline.columns)
    version = OfferVersion(
        offer_id=offer.id,
        number=offer.version,
        file_id=file.id,
        digest=file.digest,
        rows=outline.rows,
        columns=outline.columns,
    )
    session.add(version)
    session.flush()
    return version


def own_offer(session: Session, caller: Caller, offer_id: str, lock: bool = False) -> Offer:
    query = select(Offer).where(Offer.id == offer_id, Offer.organisation_id == caller.organisation_id)
    query = query.with_for_update().execution_options(populate_existing=True) if lock else query
    offer = session.scalar(query)
    if offer is None:
        raise MissingError(_MISSING)
    return offer


def _open(session: Session, caller: Caller, offer_id: str) -> Offer:
    caller.require_provider()
    offer = own_offer(session, caller, offer_id, lock=True)
    if offer.withdrawn_at is not None:
        raise ConflictError(f"the offer {offer.slug} was withdrawn: make a new one")
    return offer


def new_version(session: Session, caller: Caller, settings: Settings, offer_id: str, file_id: str) -> OfferVersion:
    """Newer data for later jobs. Contracts that are made keep the version that they name."""
    offer = _open(session, caller, offer_id)
    if offer.kind != "file":
        raise ConflictError(f"{offer.slug} is a site, which has its data to itself: nothing is uploaded for it")
    offer.version += 1
    return _file_version(session, caller, settings, offer, file_id)


def change_policy(session: Session, caller: Caller, offer_id: str, policy: Policy | Mapping[str, Any]) -> Offer:
    """New terms for later jobs."""
    offer = _open(session, caller, offer_id)
    read = read_policy(policy)
    if offer.kind == "file" and (read.epsilon is not None or read.epsilon_per_consumer is not None):
        raise InvalidError("only a site keeps count of ε, as it answers with noise: offer a site, or leave ε out")
    offer.policy = read.model_dump(mode="json")
    session.flush()
    return offer


def withdraw_offer(session: Session, caller: Caller, offer_id: str) -> Offer:
    """Nobody can choose it any more. Contracts that are made hold."""
    offer = _open(session, caller, offer_id)
    offer.withdrawn_at = now()
    session.flush()
    return offer


def own_offers(session: Session, caller: Caller) -> list[Offer]:
    """A provider's, the newest first, withdrawn ones too."""
    caller.require("read")
    own = select(Offer).where(Offer.organisation_id == caller.organisation_id)
    return list(session.scalars(own.order_by(Offer.created_at.desc(), Offer.slug)))


def current_version(session: Session, offer: Offer) -> OfferVersion:
    query = select(OfferVersion).where(OfferVersion.offer_id == offer.id, OfferVersion.number == offer.version)
    return session.scalars(query).one()


def browse(session: Session, caller: Caller) -> list[Listing]:
    """The open offers that the caller could choose; for the operator all that are open."""
    caller.require("read")
    rows = session.execute(_listed().order_by(Offer.slug)).tuples()
    return [_listing(*row) for row in rows if _shown_to(caller, row[0])]


def listing(session: Session, caller: Caller, offer_id: str) -> Listing:
    """One offer as `browse` shows it, by its id or its slug."""
    caller.require("read")
    row = session.execute(_listed().where((Offer.id == offer_id) | (Offer.slug == offer_id))).tuples().first()
    if row is None or not _shown_to(caller, row[0]):
        raise MissingError(_MISSING)
    return _listing(*row)


def _listed() -> Any:
    return (
        select(Offer, OfferVersion, Organisation)
        .join(OfferVersion, (OfferVersion.offer_id == Offer.id) & (OfferVersion.number == Offer.version))
        .join(Organisation, Organisation.id == Offer.organisation_id)
        .where(Offer.withdrawn_at.is_(None), Organisation.suspended_at.is_(None))
    )


def _shown_to(caller: Caller, offer: Offer) -> bool:
    if caller.operates or offer.organisation_id == caller.organisation_id:
        return True
    allowed = offer.policy["consumers"]
    return caller.consumes and (allowed is None or caller.slug in allowed)


def _listing(offer: Offer, version: OfferVersion, provider: Organisation) -> Listing:
    return Listing(
        id=offer.id,
        slug=offer.slug,
        name=offer.name,
        description=offer.description,
        kind=offer.kind,
        provider=provider.slug,
        provider_name=provider.name,
        price=offer.policy["price"],
        terms={name: value for name, value in offer.policy.items() if name != "consumers"},
        version=version.number,
        rows=version.rows,
        columns=version.columns,
        created_at=offer.created_at,
    )
