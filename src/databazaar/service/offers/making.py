"""Making offers and changing them. What a contract has pinned, a version of the data or a policy, stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from databazaar.errors import BazaarError
from databazaar.learning.asked_rows import refuse_small_table
from databazaar.service import files
from databazaar.service.caller import Caller
from databazaar.service.database.columns import now
from databazaar.service.database.tables import Offer, OfferVersion, Organisation
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.offers.catalogue import NO_OFFER
from databazaar.service.offers.terms import read_columns, read_policy, refuse_many
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from databazaar.service.wording import prose, slug_of, visible

LONGEST_SLUG, LONGEST_DESCRIPTION = 60, 4000
MOST_ROWS = 10**12


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
    offer = _new(session, caller, name, slug, description, policy, "site", site)
    if site != offer.slug:
        raise InvalidError(
            f"site = {site[:60]!r} must be {offer.slug!r}, as the offer is: let it join under that name", place="site"
        )
    if rows is not None and not 1 <= rows <= MOST_ROWS:
        raise InvalidError(f"rows = {rows} must be a whole number above zero: correct it, or leave it out")
    if rows is not None:
        _refuse_small(rows, f"the site {site}")
    session.add(OfferVersion(offer_id=offer.id, number=1, rows=rows, columns=read_columns(columns)))
    session.flush()
    return offer


def _refuse_small(rows: int, whose: str) -> None:
    try:
        refuse_small_table(rows, whose)
    except BazaarError as small:
        raise InvalidError(str(small)) from None


def _new(
    session: Session,
    caller: Caller,
    name: str,
    slug: str,
    description: str,
    policy: Policy | Mapping[str, Any],
    kind: str,
    site: str | None = None,
) -> Offer:
    own = slug_of(slug if slug.startswith(f"{caller.slug}-") else f"{caller.slug}-{slug}", "slug", LONGEST_SLUG)
    _refuse_anothers(session, caller, own)
    offer = Offer(
        organisation_id=caller.organisation_id,
        slug=own,
        name=visible(name, "name"),
        description=prose(description, "description", LONGEST_DESCRIPTION),
        kind=kind,
        site=site,
        policy=read_policy(policy, kind).model_dump(mode="json"),
    )
    session.add(offer)
    try:
        session.flush()
    except IntegrityError:
        raise ConflictError(f"an offer {own!r} is there already: choose another slug", place="slug") from None
    return offer


def _refuse_anothers(session: Session, caller: Caller, slug: str) -> None:
    """With an organisation north and one north-sea, north-sea-sales is the second one's."""
    parts = slug.split("-")
    longer = ["-".join(parts[:count]) for count in range(caller.slug.count("-") + 2, len(parts))]
    if session.scalar(select(Organisation.id).where(Organisation.slug.in_(longer))) is not None:
        raise ConflictError(f"the slug {slug!r} begins as another organisation's do: choose another one", place="slug")


def _file_version(session: Session, caller: Caller, settings: Settings, offer: Offer, file_id: str) -> OfferVersion:
    file = files.own_file(session, caller, file_id, lock=True)
    outline = files.outline_of(settings, file)
    refuse_many(outline.columns)
    _refuse_small(outline.rows, file.name)
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
    offer.policy = read_policy(policy, offer.kind).model_dump(mode="json")
    session.flush()
    return offer


def withdraw_offer(session: Session, caller: Caller, offer_id: str) -> Offer:
    """Nobody can choose it any more. Contracts that are made hold."""
    offer = _open(session, caller, offer_id)
    offer.withdrawn_at = now()
    session.flush()
    return offer


def own_offer(session: Session, caller: Caller, offer_id: str) -> Offer:
    """One of the caller's, withdrawn or not."""
    caller.require("read")
    return _own(session, caller, offer_id)


def _open(session: Session, caller: Caller, offer_id: str) -> Offer:
    """One that the caller is about to change, held until the transaction ends."""
    caller.require_provider()
    offer = _own(session, caller, offer_id, lock=True)
    if offer.withdrawn_at is not None:
        raise ConflictError(f"the offer {offer.slug} was withdrawn: make a new one")
    return offer


def _own(session: Session, caller: Caller, offer_id: str, lock: bool = False) -> Offer:
    query = select(Offer).where(Offer.id == offer_id, Offer.organisation_id == caller.organisation_id)
    query = query.with_for_update().execution_options(populate_existing=True) if lock else query
    offer = session.scalar(query)
    if offer is None:
        raise MissingError(NO_OFFER)
    return offer
