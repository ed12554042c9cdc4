"""What providers offer, by names and kinds of columns, never data; and contracts: requests that a provider decides,
what both parties have agreed, what a provider has earned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.config.market_file import trains_on_rows
from databazaar.money import Currency
from databazaar.service import contracts, journal, offers
from databazaar.service.database.tables import OfferVersion, Receipt
from databazaar.service.errors import MissingError
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.files import receive
from databazaar.service.http.routes import Routes
from databazaar.service.lifecycle import ContractState
from databazaar.service.policy import LEARNER_KINDS, MODEL_KINDS, Policy, read_policy

routes = Routes("offers")
APPROVALS = ("by hand", "automatic")
MODELS = [(kind, kind, "") for kind in MODEL_KINDS]
LEARNERS_SHOWN = [
    (kind, kind, "an access buys rows" if trains_on_rows(kind) else "an access buys an update")
    for kind in LEARNER_KINDS
]
MODES = [
    ("hosted", "hosted", "the hub’s arbiter gets your updates"),
    ("own", "own", "the consumer’s own arbiter gets them"),
]
BOUNDS = ("consumers", "models", "learners", "modes", "most_accesses", "most_rows", "epsilon", "epsilon_per_consumer")
DECIDED = {
    ContractState.AGREED: ("Agreed: you are asked once the consumer has paid into escrow.", "good"),
    ContractState.REFUSED: ("Refused: the consumer reads why.", "info"),
}


@routes.page("/market", "consumer/offers", "Offers", role="consumer", menu=("Buying", 1))
def market_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"listings": offers.browse(session, page.caller)}


@routes.page("/market/{offer_id}", "consumer/offer", role="consumer")
def listing_page(page: PageContext, session: Session, offer_id: str) -> dict[str, Any]:
    found = offers.listing(session, page.caller, offer_id)
    return {"title": found.name, "one": found}


@routes.page("/offers", "provider/offers", "Your offers", role="provider", menu=("Selling", 1))
def offers_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"offers": offers.own_offers(session, page.caller)}


@routes.page("/offers/new", "provider/offer_new", "New offer", role="provider")
def new_offer_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"sites": page.settings.federation is not None, **_terms_shown({}, page.currency)}


@routes.page("/offers/{offer_id}", "provider/offer", role="provider")
def offer_page(page: PageContext, session: Session, offer_id: str) -> dict[str, Any]:
    offer = offers.own_offer(session, page.caller, offer_id)
    every = select(OfferVersion).where(OfferVersion.offer_id == offer.id).order_by(OfferVersion.number.desc())
    return {
        "title": offer.name,
        "offer": offer,
        "versions": session.scalars(every).all(),
        "join": offers.join_command(offer.policy) if offer.kind == "site" else "",
        **_terms_shown(offer.policy, page.currency),
    }


def _terms_shown(policy: Mapping[str, Any], currency: Currency) -> dict[str, Any]:
    """What the fields of the terms show at first: those that hold, or the defaults."""
    defaults = {name: field.default for name, field in Policy.model_fields.items() if name != "price"}
    given: dict[str, Any] = {name: "" if value is None else value for name, value in {**defaults, **policy}.items()}
    shown = {
        **{name: f"{value:g}" if isinstance(value, float) else value for name, value in given.items()},
        "price": currency.amount(policy["price"]) if "price" in policy else "",
        "consumers": ", ".join(given["consumers"]),
        "bounded": any(given[name] for name in BOUNDS),
    }
    return {"policy": shown, "models": MODELS, "learners": LEARNERS_SHOWN, "modes": MODES}


def _terms(page: PageContext, form: Form) -> dict[str, Any]:
    """The policy that the form tells; what is wrong stands in the form."""
    consumers = [one.strip() for one in form.text("consumers").replace("\n", ",").split(",") if one.strip()]
    days = form.count("days_to_decide")
    given = {
        "price": form.needed_amount("price", page.currency),
        "approval": form.choice("approval", APPROVALS),
        "consumers": consumers or None,
        "models": form.all("models") or None,
        "learners": form.all("learners") or None,
        "modes": form.all("modes") or None,
        "most_accesses": form.count("most_accesses"),
        "most_rows": form.count("most_rows"),
        "epsilon": form.number("epsilon"),
        "epsilon_per_consumer": form.number("epsilon_per_consumer"),
        **({} if days is None else {"days_to_decide": days}),
    }
    policy = None
    with form.trying():
        policy = read_policy(given)
    return {"policy": policy}


routes.listing("/offers", shapes.Offer)(offers.browse)
routes.listing("/offers/own", shapes.OwnOffer)(offers.own_offers)
routes.read("/offers/{offer_id}", shapes.Offer)(offers.listing)


def _offered(page: PageContext, form: Form) -> dict[str, Any]:
    told = {
        **_terms(page, form),
        "name": form.needed("name", "write a name as consumers shall see it"),
        "slug": form.needed("slug", "write one such as payments").strip(),
        "description": form.text("description"),
    }
    if form.text("kind") == "site":
        return {**told, "site": form.text("site").strip(), "columns": _columns(form.text("columns"))}
    return {**told, "file_id": receive(page, form, "file", needed=True)}


routes.write("/offers", shapes.OwnOffer, 201)(offers.make_offer)
routes.form(
    "/offers",
    "The offer is open: consumers that you allow see it now.",
    "/offers/{made.id}",
    page=new_offer_page,
    read=_offered,
    uploads=True,
)(offers.make_offer)


def _columns(text: str) -> list[dict[str, str]]:
    """
    >>> _columns("amount number\\nday of week  category")
    [{'name': 'amount', 'kind': 'number'}, {'name': 'day of week', 'kind': 'category'}]
    """
    lines = [line.strip().rpartition(" ") for line in text.splitlines() if line.strip()]
    return [{"name": name.strip(), "kind": kind} for name, _, kind in lines]


def _version(page: PageContext, form: Form) -> dict[str, Any]:
    with page.read() as session:
        offers.own_offer(session, page.caller, page.request.path_params["offer_id"])
    return {"file_id": receive(page, form, "file", needed=True)}


routes.write("/offers/{offer_id}/versions", shapes.Version, 201)(offers.new_version)
routes.form(
    "/offers/{offer_id}/versions",
    "Version {made.number} is offered from now on.",
    page=offer_page,
    name="version_form",
    read=_version,
    fields={},
    uploads=True,
)(offers.new_version)


routes.write("/offers/{offer_id}/policy", shapes.OwnOffer)(offers.change_policy)
routes.form("/offers/{offer_id}/policy", "The terms are set, for jobs from now on.", page=offer_page, read=_terms)(
    offers.change_policy
)
routes.write("/offers/{offer_id}/withdraw", shapes.OwnOffer)(offers.withdraw_offer)
routes.form(
    "/offers/{offer_id}/withdraw",
    "Withdrawn: no new job can choose it. Contracts that were made go on.",
    "/offers/{offer_id}",
    role="provider",
    kind="info",
)(offers.withdraw_offer)


def attached(content: bytes | str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


@routes.page("/requests", "provider/requests", "Requests", role="provider", menu=("Selling", 2))
def requests_page(page: PageContext, session: Session) -> dict[str, Any]:
    every = contracts.own_contracts(session, page.caller, party="provider")
    return {
        "open": [one for one in every if one.state == ContractState.REQUESTED],
        "decided": [one for one in reversed(every) if one.state != ContractState.REQUESTED],
        "has_offers": bool(offers.own_offers(session, page.caller)),
    }


@routes.page("/earnings", "provider/earnings", "Earnings", role="provider", menu=("Selling", 3))
def earnings_page(page: PageContext, session: Session) -> dict[str, Any]:
    ended = contracts.own_contracts(session, page.caller, state=ContractState.ENDED, party="provider")
    lines, budgets = [one for one in reversed(ended) if one.paid is not None], []
    for offer in offers.own_offers(session, page.caller):
        if (whole := offer.policy["epsilon"]) is not None:
            spent = sum(one.epsilon or 0.0 for one in lines if one.offer_id == offer.id)
            budgets.append({"name": offer.name, "spent": spent, "whole": whole, "left": max(0.0, whole - spent)})
    own = select(Receipt.contract_id, Receipt.id).where(Receipt.organisation_id == page.caller.organisation_id)
    return {
        "lines": lines,
        "receipts": dict(session.execute(own).all()),
        "total": sum(one.paid or 0 for one in lines),
        "accesses": sum(one.accesses or 0 for one in lines),
        "earned": journal.balance(session, journal.earned(page.caller.slug)),
        "budgets": budgets,
    }


@routes.page("/receipts/{receipt_id}", "", role="provider")
def receipt(page: PageContext, session: Session, receipt_id: str) -> Response:
    found = session.get(Receipt, receipt_id)
    if found is None or found.organisation_id != page.caller.organisation_id:
        raise MissingError("there is no such receipt: look at the list of your earnings")
    content = json.dumps({"body": found.body, "signature": found.signature}, indent=2, ensure_ascii=False)
    return attached(content, f"receipt-{found.id}.json")


routes.listing("/contracts", shapes.Contract)(contracts.own_contracts)


routes.read("/contracts/{contract_id}", shapes.Contract)(contracts.own_contract)


@routes.read("/contracts/{contract_id}/schema.json", responses={200: {"content": {"application/json": {}}}})
def contract_schema(call: Call, session: Session, contract_id: str) -> Response:
    """The schema by which a site will be asked, for `bazaar provider schema kit --accept schema.json`. It holds means
    and scales of the consumer's hold-out, as every ask of a site does."""
    schema = contracts.schema_of(session, call.caller, call.settings, contract_id)
    return attached(schema, f"schema-{contract_id}.json")


routes.write("/contracts/{contract_id}/decide", shapes.Decided)(contracts.decide)
routes.form(
    "/requests/{contract_id}",
    lambda page, made: DECIDED[made.state],
    "/requests",
    read=lambda page, form: {
        "agree": form.choice("answer", ("refuse", "agree")) == "agree",
        "reason": form.text("reason"),
    },
)(contracts.decide)


routes.listing("/queues", shapes.Queue, "offer_id")(contracts.queues)
