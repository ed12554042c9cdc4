"""What providers offer: browsing for consumers, and their own for providers. Names and kinds of columns, never data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.learning.kinds import MODEL_KINDS
from databazaar.money import Currency
from databazaar.service import offers
from databazaar.service.database.tables import Offer, OfferVersion
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.resources.files import receive
from databazaar.service.http.routes import Name, Routes
from databazaar.service.policy import Policy

routes = Routes("offers")
Slug = Annotated[str, Field(min_length=1, max_length=60, description="The offer's id in ledgers; it never changes.")]
Description = Annotated[str, Field(max_length=4000)]
APPROVALS = ("by hand", "automatic")
MODELS = [(kind, kind, "") for kind in MODEL_KINDS]
MODES = [
    ("hosted", "hosted", "the hub’s arbiter gets your updates"),
    ("own", "own", "the consumer’s own arbiter gets them"),
]
BOUNDS = ("most_accesses", "most_rows", "epsilon", "epsilon_per_consumer")


@routes.page("/market", "consumer/offers", "Offers", role="consumer", menu=("Buying", "Offers", 1))
def market_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"listings": offers.browse(session, page.caller)}


@routes.page("/market/{offer_id}", "consumer/offer", role="consumer")
def listing_page(page: PageContext, session: Session, offer_id: str) -> dict[str, Any]:
    found = offers.listing(session, page.caller, offer_id)
    return {"title": found.name, "one": found}


@routes.page("/offers", "provider/offers", "Your offers", role="provider", menu=("Selling", "Offers", 1))
def offers_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"offers": offers.own_offers(session, page.caller)}


@routes.page("/offers/new", "provider/offer_new", "New offer", role="provider", forms=("form",))
def new_offer_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {"sites": page.settings.federation is not None, **_terms_shown({}, page.currency)}


@routes.page("/offers/{offer_id}", "provider/offer", role="provider", forms=("form", "version_form"))
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
    given: dict[str, Any] = {"price": None, **defaults, **policy}

    def written(name: str) -> str:
        value = given[name]
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    shown = {
        "price": "" if given["price"] is None else currency.amount(given["price"]),
        "approval": given["approval"],
        "consumers": ", ".join(given["consumers"] or ()),
        "models": list(given["models"] or ()),
        "modes": list(given["modes"] or ()),
        **{name: written(name) for name in (*BOUNDS, "days_to_decide")},
        "bounded": any(given[name] for name in (*BOUNDS, "consumers", "models", "modes")),
    }
    return {"policy": shown, "models": MODELS, "modes": MODES}


def _terms(page: PageContext, form: Form) -> dict[str, Any]:
    """What `offers.read_policy` takes; what is wrong stands in the form."""
    consumers = [one.strip() for one in form.text("consumers").replace("\n", ",").split(",") if one.strip()]
    days = form.count("days_to_decide")
    return {
        "policy": {
            "price": form.needed_amount("price", page.currency),
            "approval": form.choice("approval", APPROVALS),
            "consumers": consumers or None,
            "models": form.all("models") or None,
            "modes": form.all("modes") or None,
            "most_accesses": form.count("most_accesses"),
            "most_rows": form.count("most_rows"),
            "epsilon": form.number("epsilon"),
            "epsilon_per_consumer": form.number("epsilon_per_consumer"),
            **({} if days is None else {"days_to_decide": days}),
        }
    }


@routes.listing("/offers", shapes.Offer)
def offers_open(call: Call, session: Session) -> list[shapes.Offer]:
    """The open offers that the caller could choose; for the operator all that are open."""
    return offers.browse(session, call.caller)


@routes.listing("/offers/own", shapes.OwnOffer)
def own_offers(call: Call, session: Session) -> list[Offer]:
    """The provider's own offers."""
    return offers.own_offers(session, call.caller)


@routes.read("/offers/{offer_id}", shapes.Offer)
def offer(call: Call, session: Session, offer_id: str) -> shapes.Offer:
    """One offer, by its id or its slug."""
    return offers.listing(session, call.caller, offer_id)


@routes.write("/offers/file", shapes.OwnOffer, 201)
def make_file_offer(
    call: Call, session: Session, *, name: Name, slug: Slug, description: Description = "", policy: Policy, file_id: str
) -> Offer:
    """Offers a file that was uploaded to the hub."""
    told: offers.About = {"name": name, "slug": slug, "description": description, "policy": policy}
    return offers.make_file_offer(session, call.caller, call.settings, **told, file_id=file_id)


@routes.write("/offers/site", shapes.OwnOffer, 201)
def make_site_offer(
    call: Call,
    session: Session,
    *,
    name: Name,
    slug: Slug,
    description: Description = "",
    policy: Policy,
    site: Name,
    columns: Annotated[list[dict[str, Any]], Field(max_length=10_000)],
    rows: Annotated[int, Field(ge=0, le=10**12)] | None = None,
) -> Offer:
    """Offers what a site of the federation holds, which stays there."""
    told: offers.About = {"name": name, "slug": slug, "description": description, "policy": policy}
    place: dict[str, Any] = {"site": site, "columns": columns, "rows": rows}
    return offers.make_site_offer(session, call.caller, call.settings, **told, **place)


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


@routes.form(
    "/offers",
    "/offers/{made.id}",
    "The offer is open: consumers that you allow see it now.",
    role="provider",
    page=new_offer_page,
    read=_offered,
    uploads=True,
)
def make_offer(call: Call, session: Session, **given: Any) -> Offer:
    """Either of the two, as its form says."""
    return (make_site_offer if "site" in given else make_file_offer)(call, session, **given)


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


@routes.form(
    "/offers/{offer_id}/versions",
    "/offers/{offer_id}",
    "Version {made.number} is offered from now on.",
    role="provider",
    page=offer_page,
    name="version_form",
    read=_version,
    fields={},
    uploads=True,
)
@routes.write("/offers/{offer_id}/versions", shapes.Version, 201)
def new_version(call: Call, session: Session, offer_id: str, *, file_id: str) -> OfferVersion:
    """New data for an offer. Contracts keep the version that they name."""
    return offers.new_version(session, call.caller, call.settings, offer_id, file_id)


@routes.form(
    "/offers/{offer_id}/policy",
    "/offers/{offer_id}",
    "The terms are set, for jobs from now on.",
    role="provider",
    page=offer_page,
    read=_terms,
)
@routes.write("/offers/{offer_id}/policy", shapes.OwnOffer)
def change_policy(call: Call, session: Session, offer_id: str, *, policy: Policy) -> Offer:
    """New terms, for jobs that are submitted from now on."""
    return offers.change_policy(session, call.caller, offer_id, policy)


@routes.form(
    "/offers/{offer_id}/withdraw",
    "/offers/{offer_id}",
    "Withdrawn: no new job can choose it. Contracts that were made go on.",
    role="provider",
    kind="info",
)
@routes.write("/offers/{offer_id}/withdraw", shapes.OwnOffer)
def withdraw_offer(call: Call, session: Session, offer_id: str) -> Offer:
    """Takes an offer off the market. Contracts that were agreed are kept."""
    return offers.withdraw_offer(session, call.caller, offer_id)
