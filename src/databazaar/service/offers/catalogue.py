"""Looking at offers: what a consumer may know before it buys, and a provider's own."""

from __future__ import annotations

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Offer, OfferVersion, Organisation
from databazaar.service.errors import MissingError

NO_OFFER = "there is no such offer: look at the list of offers"


def browse(session: Session, caller: Caller) -> list[shapes.Offer]:
    """The open offers that the caller could choose; for the operator all that are open."""
    caller.require("read")
    rows = session.execute(_listed().order_by(Offer.slug))
    return [_listing(*row) for row in rows if _shown_to(caller, row[0])]


def listing(session: Session, caller: Caller, offer_id: str) -> shapes.Offer:
    """One offer as `browse` shows it, by its id or its slug."""
    caller.require("read")
    row = session.execute(_listed().where((Offer.id == offer_id) | (Offer.slug == offer_id))).first()
    if row is None or not _shown_to(caller, row[0]):
        raise MissingError(NO_OFFER)
    return _listing(*row)


def own_offers(session: Session, caller: Caller) -> list[Offer]:
    """A provider's, the newest first, withdrawn ones too."""
    caller.require("read")
    own = select(Offer).where(Offer.organisation_id == caller.organisation_id)
    return list(session.scalars(own.order_by(Offer.created_at.desc(), Offer.slug)))


def current_version(session: Session, offer: Offer) -> OfferVersion:
    query = select(OfferVersion).where(OfferVersion.offer_id == offer.id, OfferVersion.number == offer.version)
    return session.scalars(query).one()


def _listed() -> Select[Offer, OfferVersion, Organisation]:
    return (
        select(Offer, OfferVersion, Organisation)
        .join(OfferVersion, (OfferVersion.offer_id == Offer.id) & (OfferVersion.number == Offer.version))
        .join(Organisation, Organisation.id == Offer.organisation_id)
        .where(Offer.withdrawn_at.is_(None), Organisation.suspended_at.is_(None))
    )


def _shown_to(caller: Caller, offer: Offer) -> bool:
    if caller.sees_all or offer.organisation_id == caller.organisation_id:
        return True
    allowed = offer.policy["consumers"]
    return caller.consumes and (allowed is None or caller.slug in allowed)


def _listing(offer: Offer, version: OfferVersion, provider: Organisation) -> shapes.Offer:
    return from_row(
        shapes.Offer,
        offer,
        provider=provider.slug,
        provider_name=provider.name,
        price=offer.policy["price"],
        terms={name: value for name, value in offer.policy.items() if name != "consumers"},
        version=version.number,
        rows=version.rows,
        columns=version.columns,
    )
