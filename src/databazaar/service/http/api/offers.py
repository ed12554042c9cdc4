"""What providers offer: browsing for consumers, and their own for providers. Names and kinds of columns, never data."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from databazaar.client import shapes
from databazaar.service import offers
from databazaar.service.http.api.calls import Asking, Doing
from databazaar.service.http.api.shapes import After, Asked, Limit, Name, Page, paged
from databazaar.service.policy import Policy

router = APIRouter(prefix="/v1", tags=["offers"])
Slug = Annotated[str, Field(min_length=1, max_length=60, description="The offer's id in ledgers; it never changes.")]
Description = Annotated[str, Field(max_length=4000)]


class MakeFileOffer(Asked):
    name: Name
    slug: Slug
    description: Description = ""
    policy: Policy
    file_id: str


class MakeSiteOffer(Asked):
    name: Name
    slug: Slug
    description: Description = ""
    policy: Policy
    site: Name
    columns: Annotated[list[dict[str, Any]], Field(max_length=10_000)]
    rows: Annotated[int, Field(ge=0, le=10**12)] | None = None


class NewVersion(Asked):
    file_id: str


class ChangePolicy(Asked):
    policy: Policy


@router.get("/offers", response_model=Page[shapes.Offer])
def offers_open(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.Offer]:
    """The open offers that the caller could choose; for the operator all that are open."""
    with call.read() as session:
        found = offers.browse(session, call.caller)
        return paged(shapes.Offer, found, after, limit)


@router.get("/offers/own", response_model=Page[shapes.OwnOffer])
def own_offers(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.OwnOffer]:
    """The provider's own offers."""
    with call.read() as session:
        found = offers.own_offers(session, call.caller)
        return paged(shapes.OwnOffer, found, after, limit)


@router.post("/offers/file", response_model=shapes.OwnOffer, status_code=201)
def make_file_offer(asked: MakeFileOffer, call: Doing) -> Response:
    """Offers a file that was uploaded to the hub."""
    return call.do(
        shapes.OwnOffer, lambda session: offers.make_file_offer(session, call.caller, call.settings, **dict(asked)), 201
    )


@router.post("/offers/site", response_model=shapes.OwnOffer, status_code=201)
def make_site_offer(asked: MakeSiteOffer, call: Doing) -> Response:
    """Offers what a site of the federation holds, which stays there."""
    return call.do(
        shapes.OwnOffer, lambda session: offers.make_site_offer(session, call.caller, call.settings, **dict(asked)), 201
    )


@router.get("/offers/{offer_id}", response_model=shapes.Offer)
def offer(offer_id: str, call: Asking) -> shapes.Offer:
    """One offer, by its id or its slug."""
    with call.read() as session:
        return offers.listing(session, call.caller, offer_id)


@router.post("/offers/{offer_id}/versions", response_model=shapes.Version, status_code=201)
def new_version(offer_id: str, asked: NewVersion, call: Doing) -> Response:
    """New data for an offer. Contracts keep the version that they name."""
    return call.do(
        shapes.Version,
        lambda session: offers.new_version(session, call.caller, call.settings, offer_id, asked.file_id),
        201,
    )


@router.post("/offers/{offer_id}/policy", response_model=shapes.OwnOffer)
def change_policy(offer_id: str, asked: ChangePolicy, call: Doing) -> Response:
    """New terms, for jobs that are submitted from now on."""
    return call.do(shapes.OwnOffer, lambda session: offers.change_policy(session, call.caller, offer_id, asked.policy))


@router.post("/offers/{offer_id}/withdraw", response_model=shapes.OwnOffer)
def withdraw_offer(offer_id: str, call: Doing) -> Response:
    """Takes an offer off the market. Contracts that were agreed are kept."""
    return call.do(shapes.OwnOffer, lambda session: offers.withdraw_offer(session, call.caller, offer_id))
