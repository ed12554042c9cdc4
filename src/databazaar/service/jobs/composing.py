"""The market.toml of a job: what the consumer has specified, what providers have agreed to, and what the hub decides.

It is parsed as any other is, so that its faults are told in market.toml's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.config.market_file import MarketFile, parse_market
from databazaar.errors import BazaarError
from databazaar.money import Currency
from databazaar.service.database.tables import File, Job, Offer, OfferVersion, Organisation
from databazaar.service.errors import InvalidError
from databazaar.service.jobs.bounds import refuse_out_of_bounds
from databazaar.service.lives import contracts_of
from databazaar.service.members import currency_of
from databazaar.service.settings import Settings
from databazaar.service.states import ContractState

ROLES = ("holdout", "train", "audit")
"""Of a consumer's files: `data.holdout`, `consumer.train` and `data.audit`."""
HUBS = ("engine", "federation", "ledger", "providers")
"""The sections that the hub writes itself, but for what a consumer may say of the lines to sites."""
LINES = {"compression"}
"""That is this of the section `federation`."""
PLACEHOLDER = "holdout.csv"
"""A hold-out that stays with the consumer has this name here."""


@dataclass(frozen=True)
class Seller:
    """One of the market's providers: an offer at the terms of now, or of a contract."""

    offer: Offer
    version: OfferVersion
    owner: str
    price: int
    most_accesses: int | None
    file: File | None


@dataclass(frozen=True)
class MarketOf:
    """The market that a job describes. `settings` is what market.toml holds, and `links` the files that it names."""

    parsed: MarketFile
    settings: dict[str, Any]
    links: dict[str, File]
    sellers: tuple[Seller, ...]


def market_of(session: Session, settings: Settings, job: Job) -> MarketOf:
    """The market of a job as it stands: by its contracts if it has any that hold, else by what the offers say now."""
    contracts = contracts_of(session, job)
    live = [c for c in contracts if c.state in (ContractState.AGREED, ContractState.ACTIVE, ContractState.ENDED)]
    asked = [c for c in contracts if c.state == ContractState.REQUESTED]
    if contracts:
        pinned = {c.offer_id: (c.version_id, c.price, c.terms["most_accesses"]) for c in [*live, *asked]}
        sellers = _sellers(session, [offer for offer in job.offers if offer in pinned], pinned)
    else:
        sellers = _sellers(session, job.offers, {})
    return composed(session, settings, job, sellers)


def _sellers(session: Session, ids: Sequence[str], pinned: Mapping[str, tuple[str, int, int | None]]) -> list[Seller]:
    found = []
    for id in ids:
        offer = session.get_one(Offer, id)
        current = select(OfferVersion).where(OfferVersion.offer_id == id, OfferVersion.number == offer.version)
        if id in pinned:
            version_id, price, most = pinned[id]
            version = session.get_one(OfferVersion, version_id)
        else:
            version, price, most = session.scalars(current).one(), offer.policy["price"], offer.policy["most_accesses"]
        owner = session.get_one(Organisation, offer.organisation_id).slug
        file = session.get_one(File, version.file_id) if version.file_id else None
        found.append(Seller(offer, version, owner, price, most, file))
    return found


def composed(session: Session, settings: Settings, job: Job, sellers: Sequence[Seller]) -> MarketOf:
    """The market of a job over these sellers, or an InvalidError in market.toml's words."""
    spec, currency = _spec(job.spec), currency_of(session)
    kinds = {seller.offer.kind for seller in sellers}
    if len(kinds) > 1:
        raise InvalidError("a job takes offers at the hub or sites of the federation, not both: choose one kind")
    if kinds == {"site"} and settings.federation is None:
        raise InvalidError("this market has no federation any more: choose offers at the hub")
    links = {}
    for role, id in job.files.items():
        file = session.get_one(File, id)
        links[f"data/{role}{file.suffix}"] = file
    names = {role: f"data/{role}{session.get_one(File, id).suffix}" for role, id in job.files.items()}
    providers = []
    for seller in sellers:
        entry: dict[str, Any] = {"id": seller.offer.slug}
        if seller.file is not None:
            entry["file"] = f"data/{seller.offer.slug}{seller.file.suffix}"
            links[entry["file"]] = seller.file
        entry |= {"owner": seller.owner, "price": currency.amount(seller.price), "most_accesses": seller.most_accesses}
        providers.append(entry)
    buyer = session.get_one(Organisation, job.organisation_id)
    lines = spec.pop("federation", {})
    if lines and kinds == {"file"}:
        raise InvalidError("federation.compression is for sites, and these offers are at the hub: leave it out")
    whole = _whole(spec, job.name, buyer.name, currency, names)
    if kinds == {"site"}:
        whole["engine"] = {"kind": "federated"}
        folder = str(Path(settings.federation or "").resolve())
        whole["federation"] = {**lines, "folder": folder, "consumer": buyer.slug, "contract": job.id}
    whole["providers"] = providers
    parsed = _parsed(whole)
    refuse_out_of_bounds(parsed, {one.offer.slug: one.version.rows for one in sellers}, settings.most_visits)
    return MarketOf(parsed, whole, links, tuple(sellers))


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The specification, without anything that is the hub's to say."""
    lines = spec.get("federation")
    of_lines = isinstance(lines, Mapping) and set(lines) <= LINES
    for section in HUBS:
        if section in spec and not (section == "federation" and of_lines):
            but = ", but for compression" if section == "federation" else ""
            raise InvalidError(f"{section} is the market's to write{but}: leave that section out of the job")
    for section, setting in (("market", "name"), ("consumer", "name"), ("data", "holdout")):
        if isinstance(spec.get(section), Mapping) and setting in spec[section]:
            raise InvalidError(f"{section}.{setting} is the market's to write: leave it out of the job")
    for section, setting in (("consumer", "train"), ("data", "audit")):
        if isinstance(spec.get(section), Mapping) and isinstance(spec[section].get(setting), str):
            raise InvalidError(
                f"{section}.{setting} is a share such as 0.2 here: upload a file, and name it as the job's {setting}"
            )
    _refuse_figures(spec.get("defence"))
    kind = spec["payment"].get("kind") if isinstance(spec.get("payment"), Mapping) else None
    if kind not in (None, "price-per-access"):
        raise InvalidError(
            f"payment.kind = {kind!r} does not fit contracts, which fix a price for one access: leave [payment] out"
        )
    return dict(spec)


def _refuse_figures(defence: Any) -> None:
    """A defence may take back pay, so providers agree to one by its name, at the figures that the name stands for."""
    figures = sorted(set(defence) - {"kind"}) if isinstance(defence, Mapping) else []
    if figures:
        raise InvalidError(
            f"defence.{figures[0]} is fixed by the defence's name, to which the providers agree: leave it out, and "
            'write defence.kind = "none", "standard" or "strict" alone'
        )


def _whole(spec: dict[str, Any], name: str, buyer: str, currency: Currency, files: Mapping[str, str]) -> dict[str, Any]:
    market, consumer, data = (spec.get(section, {}) for section in ("market", "consumer", "data"))
    if not all(isinstance(section, Mapping) for section in (market, consumer, data)):
        return dict(spec)  # whose faults the parser tells
    own = {"currency": currency.name, "decimals": currency.decimals}
    for setting, value in own.items():
        if market.get(setting, value) != value:
            raise InvalidError(f"market.{setting} = {market[setting]!r} is {value!r} in this market: leave it out")
    market = {"name": name, **market, **own}
    consumer = {**consumer, "name": buyer, **({"train": files["train"]} if "train" in files else {})}
    data = {**data, "holdout": files.get("holdout", PLACEHOLDER)}
    data |= {"audit": files["audit"]} if "audit" in files else {}
    rest = {section: value for section, value in spec.items() if section not in ("market", "consumer", "data")}
    return {"market": market, "consumer": consumer, "data": data, **rest}


def _parsed(settings: dict[str, Any]) -> MarketFile:
    given = {
        name: [{k: v for k, v in entry.items() if v is not None} for entry in value] if name == "providers" else value
        for name, value in settings.items()
    }
    try:
        return parse_market(given, "job")
    except BazaarError as fault:
        raise InvalidError(str(fault)) from None
