"""Offers: datasets of providers, at the hub or at a site of the federation, under terms of their own.

What is shown of the data is the names and kinds of columns and how many rows there are; never a value. What a contract
has pinned, a version of the data or a policy, stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.learning.asked_rows import refuse_small_table
from databazaar.models import MODEL_KINDS as UPDATED
from databazaar.service import files
from databazaar.service.caller import Caller, own_row
from databazaar.service.database.tables import Offer, OfferVersion, Organisation, now
from databazaar.service.errors import ConflictError, InvalidError, MissingError, as_invalid
from databazaar.service.names import prose, slug_of, visible
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from databazaar.service.table_reader import MOST_COLUMNS

KINDS = ("number", "date", "category", "text", "empty")


def read_columns(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The columns of a site as its provider describes them."""
    refuse_many(given)
    columns = []
    for place, column in enumerate(given):
        name, kind = column.get("name"), column.get("kind")
        if not isinstance(name, str) or kind not in KINDS:
            said = f"columns[{place}] must have a name, and a kind out of {', '.join(KINDS)}: correct it"
            raise InvalidError(said, place="columns")
        columns.append({"name": visible(name, f"columns[{place}].name", 1000), "kind": kind})
    return columns


def refuse_many(columns: Sequence[object]) -> None:
    if not 1 <= len(columns) <= MOST_COLUMNS:
        said = f"an offer has 1 to {MOST_COLUMNS:,} columns, not {len(columns):,}: leave some out"
        raise InvalidError(said, place="columns")


NO_OFFER = "there is no such offer: look at the list of offers"


def browse(session: Session, caller: Caller) -> list[shapes.Offer]:
    """The open offers that the caller could choose; for the operator all that are open."""
    caller.require("read")
    rows = session.execute(_listed().order_by(Offer.slug))
    return [_listing(*row) for row in rows if _shown_to(caller, row[0])]


def listing(session: Session, caller: Caller, offer_id: str) -> shapes.Offer:
    """One offer, by its id or its slug."""
    caller.require("read")
    row = session.execute(_listed().where((Offer.id == offer_id) | (Offer.slug == offer_id))).first()
    if row is None or not _shown_to(caller, row[0]):
        raise MissingError(NO_OFFER)
    return _listing(*row)


def own_offers(session: Session, caller: Caller) -> list[Offer]:
    """The provider's own offers, the newest first, withdrawn ones too."""
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
    return shapes.Offer.of(
        offer,
        provider=provider.slug,
        provider_name=provider.name,
        price=offer.policy["price"],
        terms={name: value for name, value in offer.policy.items() if name != "consumers"},
        version=version.number,
        rows=version.rows,
        columns=version.columns,
    )


SCHEMAS = 20
"""Every consumer asks by a schema of its own, so a site of a hub lets several come."""


def join_command(policy: Mapping[str, Any]) -> str:
    """The hub keeps to the terms; a site that joins so keeps to them whatever the hub does.

    >>> join_command({"price": 5, "consumers": ["north", "south"], "most_rows": 500, "epsilon": 4.0})
    'bazaar provider join kit --data FILE --schemas 20 --consumers north,south --max-samples 500 --epsilon-cap 4'
    >>> join_command({"price": 5})
    'bazaar provider join kit --data FILE --schemas 20'
    """
    options = {
        "consumers": "--consumers",
        "models": "--models",
        "most_accesses": "--max-accesses",
        "most_rows": "--max-samples",
        "epsilon": "--epsilon-cap",
        "epsilon_per_consumer": "--max-epsilon-per-consumer",
    }
    parts = [f"bazaar provider join kit --data FILE --schemas {SCHEMAS}"]
    for name, option in options.items():
        value = policy.get(name)
        if value is not None:
            written = ",".join(value) if isinstance(value, list) else f"{value:g}" if value % 1 else int(value)
            parts.append(f"{option} {written}")
    return " ".join(parts)


LONGEST_SLUG, LONGEST_DESCRIPTION = 60, 4000
MOST_ROWS = 10**12


def make_offer(
    session: Session,
    caller: Caller,
    settings: Settings,
    *,
    name: str,
    slug: str,
    description: str = "",
    policy: Policy,
    file_id: str | None = None,
    site: str | None = None,
    columns: Sequence[Mapping[str, Any]] = (),
    rows: int | None = None,
) -> Offer:
    """Offers a file that was uploaded to the hub (`file_id`), or what a `site` of the federation holds, which stays
    there: its provider describes the `columns`. The slug begins with the organisation's, and a site bears it too: so
    nobody offers another's site."""
    caller.require_provider()
    if (file_id is None) == (site is None):
        raise InvalidError("an offer is of a file or of a site: give either file_id or site")
    if site is not None and settings.federation is None:
        raise ConflictError("this market has no federation: offer a file, or ask its operator for one")
    kind = "file" if site is None else "site"
    _refuse_unkept(policy, kind)
    slug = slug_of(slug if slug.startswith(f"{caller.slug}-") else f"{caller.slug}-{slug}", "slug", LONGEST_SLUG)
    _refuse_anothers(session, caller, slug)
    offer = Offer(
        organisation_id=caller.organisation_id,
        slug=slug,
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
        raise ConflictError(f"an offer {slug!r} is there already: choose another slug", place="slug") from None
    if file_id is not None:
        _file_version(session, caller, offer, file_id)
    else:
        _site_version(session, offer, columns, rows)
    return offer


def _refuse_unkept(policy: Policy, kind: str) -> None:
    if kind == "file" and (policy.epsilon is not None or policy.epsilon_per_consumer is not None):
        said = "only a site keeps count of ε, as it answers with noise: offer a site, or leave ε out"
        raise InvalidError(said, place="epsilon")
    rowwise = set(policy.models or ()) - set(UPDATED)
    if kind == "site" and rowwise:
        said = f"a site answers with updates, and no model {min(rowwise)!r} is trained by them: leave it out of models"
        raise InvalidError(said, place="models")


def _refuse_anothers(session: Session, caller: Caller, slug: str) -> None:
    """With an organisation north and one north-sea, north-sea-sales is the second one's."""
    parts = slug.split("-")
    longer = ["-".join(parts[:count]) for count in range(caller.slug.count("-") + 2, len(parts))]
    if session.scalar(select(Organisation.id).where(Organisation.slug.in_(longer))) is not None:
        raise ConflictError(f"the slug {slug!r} begins as another organisation's do: choose another one", place="slug")


def _site_version(session: Session, offer: Offer, columns: Sequence[Mapping[str, Any]], rows: int | None) -> None:
    if offer.site != offer.slug:
        said = (
            f"site = {(offer.site or '')[:60]!r} must be {offer.slug!r}, as the offer is: let it join under that name"
        )
        raise InvalidError(said, place="site")
    if rows is not None:
        if not 1 <= rows <= MOST_ROWS:
            raise InvalidError(f"rows = {rows} must be a whole number above zero: correct it, or leave it out")
        with as_invalid():
            refuse_small_table(rows, f"the site {offer.site}")
    session.add(OfferVersion(offer_id=offer.id, number=1, rows=rows, columns=read_columns(columns)))


def _file_version(session: Session, caller: Caller, offer: Offer, file_id: str) -> OfferVersion:
    file = files.own_file(session, caller, file_id, lock=True)
    refuse_many(file.columns)
    with as_invalid():
        refuse_small_table(file.rows, file.name)
    version = OfferVersion(
        offer_id=offer.id,
        number=offer.version,
        file_id=file.id,
        digest=file.digest,
        rows=file.rows,
        columns=file.columns,
    )
    session.add(version)
    session.flush()
    return version


def new_version(session: Session, caller: Caller, offer_id: str, file_id: str) -> OfferVersion:
    """Newer data for later jobs. Contracts that are made keep the version that they name."""
    offer = _open(session, caller, offer_id)
    if offer.kind != "file":
        raise ConflictError(f"{offer.slug} is a site, which has its data to itself: nothing is uploaded for it")
    offer.version += 1
    return _file_version(session, caller, offer, file_id)


def change_policy(session: Session, caller: Caller, offer_id: str, policy: Policy) -> Offer:
    """New terms, for jobs that are submitted from now on."""
    offer = _open(session, caller, offer_id)
    _refuse_unkept(policy, offer.kind)
    offer.policy = policy.model_dump(mode="json")
    return offer


def withdraw_offer(session: Session, caller: Caller, offer_id: str) -> Offer:
    """Takes an offer off the market. Contracts that are made hold."""
    offer = _open(session, caller, offer_id)
    offer.withdrawn_at = now()
    return offer


def own_offer(session: Session, caller: Caller, offer_id: str) -> Offer:
    """One of the caller's, withdrawn or not."""
    caller.require("read")
    return own_row(session, caller, Offer, offer_id, NO_OFFER)


def _open(session: Session, caller: Caller, offer_id: str) -> Offer:
    """One that the caller is about to change, held until the transaction ends."""
    caller.require_provider()
    offer = own_row(session, caller, Offer, offer_id, NO_OFFER, lock=True)
    if offer.withdrawn_at is not None:
        raise ConflictError(f"the offer {offer.slug} was withdrawn: make a new one")
    return offer
