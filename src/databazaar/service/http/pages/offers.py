"""A provider's offers: made of a file or a site, with terms, in versions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import select

from databazaar.service import offers
from databazaar.service.database.tables import OfferVersion
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.policy_form import MODELS, MODES, PLACES, read_terms, shown_terms
from databazaar.service.http.pages.uploading import receive
from databazaar.service.http.pages.visits import Posted, Visit, Visiting
from databazaar.service.http.security_bodies import takes_uploads

OFFER_PLACES = {
    "slug": "slug",
    "name": "name must",
    "description": "description",
    "site": "site =",
    "columns": "columns",
    **PLACES,
}
router = APIRouter(include_in_schema=False, prefix="/offers")


@router.get("")
def own_offers(visit: Visiting) -> Response:
    visit.caller.require_provider()
    with visit.read() as session:
        found = offers.own_offers(session, visit.caller)
    return visit.render("provider/offers", "Your offers", offers=found)


@router.get("/new")
def new_offer(visit: Visiting) -> Response:
    visit.caller.require_provider()
    return _new(visit, Form())


def _new(visit: Visit, form: Form, status: int = 200) -> Response:
    return visit.render(
        "provider/offer_new",
        "New offer",
        status,
        form=form,
        sites=visit.settings.federation is not None,
        models=MODELS,
        modes=MODES,
        policy=shown_terms(None, visit.currency),
    )


@router.post("")
@takes_uploads
def make_offer(visit: Visiting, posted: Posted) -> Response:
    visit.caller.require_provider()
    form = Form(posted)
    policy = read_terms(form, visit.currency)
    told: dict[str, Any] = {
        "name": form.needed("name", "write a name as consumers shall see it"),
        "slug": form.needed("slug", "write one such as payments").strip(),
        "description": form.text("description"),
        "policy": policy,
    }
    site = form.text("kind") == "site"
    if not site:
        receive(visit, form, "file", needed=True)
    offer_id = ""
    with form.trying(**OFFER_PLACES):
        if not form.faulty:
            with visit.begin() as session:
                if site:
                    offer = offers.make_site_offer(
                        session,
                        visit.caller,
                        visit.settings,
                        **told,
                        site=form.text("site").strip(),
                        columns=_columns(form.text("columns")),
                    )
                else:
                    file = form.kept["file"]
                    offer = offers.make_file_offer(session, visit.caller, visit.settings, **told, file_id=file.id)
                offer_id = offer.id
    if form.faulty:
        return _new(visit, form, 422)
    return visit.see(f"/offers/{offer_id}", "The offer is open: consumers that you allow see it now.")


def _columns(text: str) -> list[dict[str, str]]:
    """
    >>> _columns("amount number\\nday of week  category")
    [{'name': 'amount', 'kind': 'number'}, {'name': 'day of week', 'kind': 'category'}]
    """
    lines = [line.strip().rpartition(" ") for line in text.splitlines() if line.strip()]
    return [{"name": name.strip(), "kind": kind} for name, _, kind in lines]


@router.get("/{offer_id}")
def one_offer(visit: Visiting, offer_id: str) -> Response:
    return _offer(visit, offer_id, Form(), Form())


def _offer(visit: Visit, offer_id: str, form: Form, version_form: Form, status: int = 200) -> Response:
    visit.caller.require_provider()
    with visit.read() as session:
        offer = offers.own_offer(session, visit.caller, offer_id)
        every = select(OfferVersion).where(OfferVersion.offer_id == offer.id).order_by(OfferVersion.number.desc())
        versions = session.scalars(every).all()
    return visit.render(
        "provider/offer",
        offer.name,
        status,
        offer=offer,
        versions=versions,
        form=form,
        version_form=version_form,
        models=MODELS,
        modes=MODES,
        policy=shown_terms(offer.policy, visit.currency),
        join=offers.join_command(offer.policy) if offer.kind == "site" else "",
    )


@router.post("/{offer_id}/versions")
@takes_uploads
def new_version(visit: Visiting, posted: Posted, offer_id: str) -> Response:
    visit.caller.require_provider()
    form = Form(posted)
    with visit.read() as session:
        offers.own_offer(session, visit.caller, offer_id)
    receive(visit, form, "file", needed=True)
    number = 0
    with form.trying():
        if not form.faulty:
            with visit.begin() as session:
                made = offers.new_version(session, visit.caller, visit.settings, offer_id, form.kept["file"].id)
                number = made.number
    if form.faulty:
        return _offer(visit, offer_id, Form(), form, 422)
    return visit.see(f"/offers/{offer_id}", f"Version {number} is offered from now on.")


@router.post("/{offer_id}/policy")
def change_terms(visit: Visiting, posted: Posted, offer_id: str) -> Response:
    form = Form(posted)
    policy = read_terms(form, visit.currency)
    with form.trying(**PLACES):
        if not form.faulty:
            with visit.begin() as session:
                offers.change_policy(session, visit.caller, offer_id, policy)
    if form.faulty:
        return _offer(visit, offer_id, form, Form(), 422)
    return visit.see(f"/offers/{offer_id}", "The terms are set, for jobs from now on.")


@router.post("/{offer_id}/withdraw")
def withdraw(visit: Visiting, _: Posted, offer_id: str) -> Response:
    with visit.refusals() as refused, visit.begin() as session:
        offers.withdraw_offer(session, visit.caller, offer_id)
    if refused:
        return visit.see(f"/offers/{offer_id}", refused[0], kind="bad")
    return visit.see(
        f"/offers/{offer_id}", "Withdrawn: no new job can choose it. Contracts that were made go on.", kind="info"
    )
