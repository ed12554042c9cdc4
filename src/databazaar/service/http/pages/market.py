"""What a consumer can choose from: offers with their columns, price and terms, and never a value."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import offers
from databazaar.service.http.pages.visits import Visiting

router = APIRouter(include_in_schema=False, prefix="/market")


@router.get("")
def browse(visit: Visiting) -> Response:
    visit.caller.require_consumer()
    with visit.read() as session:
        listings = offers.browse(session, visit.caller)
    return visit.render("consumer/offers", "Offers", listings=listings)


@router.get("/{offer_id}")
def one_offer(visit: Visiting, offer_id: str) -> Response:
    visit.caller.require_consumer()
    with visit.read() as session:
        found = offers.listing(session, visit.caller, offer_id)
    return visit.render("consumer/offer", found.name, one=found)
