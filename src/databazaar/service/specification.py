"""The specification of a job: its market.toml, composed once when the job is submitted, and kept with its SHA-256.

It holds what the consumer has specified, what offers say, and what the hub decides, and is parsed as any market.toml:
its faults are told in market.toml's own words. From then on everybody reads what is kept.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from databazaar.config.chosen_rules import asked_of, read_chosen
from databazaar.config.market_file import (
    NETWORK,
    MarketFile,
    instead_of_rows,
    learner_of,
    parse_market,
    trains_on_rows,
)
from databazaar.config.sections import DataSettings
from databazaar.config.toml_text import toml_text
from databazaar.errors import LedgerError
from databazaar.learning.asked_rows import ROWS, ask_cost, refuse_few_rows, refuse_small_table
from databazaar.models import MODELS
from databazaar.money import Currency
from databazaar.registry import MarketFacts
from databazaar.service.database.tables import File, Job, Offer, OfferVersion, Organisation
from databazaar.service.errors import InvalidError, as_invalid
from databazaar.service.members import currency_of
from databazaar.service.offers import current_version
from databazaar.service.settings import Settings
from databazaar.settings import Faults, read


def refuse_out_of_bounds(asked: Mapping[str, Any], tables: Mapping[str, int | None], own: int, most: int) -> None:
    """Refuses an ask over too few rows, and one that goes through more than `most` rows. `tables` has the rows of each
    offer, None where they are not known: a site then keeps to limits of its own. A learner that trains on rows goes
    through the consumer's `own` too."""
    with as_invalid():
        refuse_few_rows(asked)
        for offer, rows in tables.items():
            if rows is not None:
                refuse_small_table(rows, f"the offer {offer}")
    section, lower = "oracle", "oracle.steps, oracle.epochs or oracle.batch_size"
    if asked["kind"] == ROWS:
        section, lower = "learner", "learner.rows"
        if (cost := asked["passes"] * own) > most:
            raise InvalidError(
                f"learner: a round makes {cost:,} visits of your own {own:,} rows, and this hub allows {most:,}: send "
                "fewer rows"
            )
    for offer, rows in tables.items():
        cost = ask_cost(asked, rows)
        if cost is not None and cost > most:
            raise InvalidError(
                f"{section}: an ask of the offer {offer} makes {cost:,} row visits, and this hub allows {most:,}: "
                f"lower {lower}"
            )


def refuse_rows_elsewhere(settings: Mapping[str, Any], own: bool) -> None:
    """Refuses a learner that trains on rows where these stay elsewhere: at sites, or away from the `own` arbiter."""
    learner, model = learner_of(settings)
    if trains_on_rows(learner):
        who = "an own arbiter gets updates alone" if own else "sites answer with updates alone"
        raise InvalidError(
            f'learner.kind = "{learner}" trains on rows, and {who}: use {instead_of_rows(model)}, or a hosted job over '
            "offers of files",
            place="model.kind",
        )


ROLES = ("holdout", "train", "audit")
"""Of a consumer's files: `data.holdout`, `consumer.train` and `data.audit`."""
HUBS = ("engine", "federation", "ledger", "providers")
"""The sections that the hub writes itself."""


@dataclass(frozen=True)
class Seller:
    """One of the market's providers: an offer at the terms of now."""

    offer: Offer
    version: OfferVersion
    owner: str
    file: File | None


@dataclass(frozen=True)
class Composition:
    """The market that a job describes. `settings` is what market.toml holds, and `links` the files that it names."""

    parsed: MarketFile
    settings: dict[str, Any]
    links: dict[str, File]
    sellers: tuple[Seller, ...]

    def refuse_out_of_bounds(self, most: int, outputs: int = 1) -> None:
        """As far as it is known before tables are read."""
        files = {str(path) for path in (self.parsed.data.holdout, self.parsed.consumer.train)}
        own = [file.rows for name, file in self.links.items() if name in files]
        tables = {one.offer.slug: one.version.rows for one in self.sellers}
        refuse_out_of_bounds(asked_of(self.parsed, outputs), tables, sum(own), most)


def compose(session: Session, settings: Settings, job: Job) -> Composition:
    """The market of a draft by its offers' present terms; for an own arbiter, without the hub's paths."""
    sellers, own = _sellers(session, job.offers), job.mode == "own"
    spec, currency = _spec(job.spec), currency_of(session)
    kinds = {seller.offer.kind for seller in sellers}
    if len(kinds) > 1:
        said = "a job takes offers at the hub or sites of the federation, not both: choose one kind"
        raise InvalidError(said, place="offers")
    if kinds == {"site"} and settings.federation is None:
        raise InvalidError("this market has no federation any more: choose offers at the hub")
    own_files = consumer_files(session, job)
    names = {role: name_of(role, file) for role, file in own_files.items()}
    links = {names[role]: file for role, file in own_files.items()}
    providers = []
    for seller in sellers:
        entry: dict[str, Any] = {"id": seller.offer.slug}
        if seller.file is not None:
            links[name_of(seller.offer.slug, seller.file)] = seller.file
            entry |= {} if own else {"file": name_of(seller.offer.slug, seller.file)}
        policy = seller.offer.policy
        entry |= {"owner": seller.owner, "price": currency.amount(policy["price"])}
        entry |= {} if policy["most_accesses"] is None else {"most_accesses": policy["most_accesses"]}
        providers.append(entry)
    buyer = session.get_one(Organisation, job.organisation_id)
    whole = _whole(spec, job.name, buyer.name, currency, names)
    if kinds == {"site"} or own:
        whole["engine"] = {"kind": "federated"}
        refuse_rows_elsewhere(whole, own)
        folder = "." if own else str(Path(settings.federation or "").resolve())  # one's own is reached through the hub
        named = {"consumer": buyer.slug, "contract": job.id} if kinds == {"site"} else {}
        whole["federation"] = {**named, "folder": folder}
    whole["providers"] = providers
    market = Composition(_parsed(whole), whole, links, tuple(sellers))
    market.refuse_out_of_bounds(settings.most_visits)
    return market


def name_of(name: str, file: File) -> str:
    """What a file is called in a job's folder: by its role, or by its offer."""
    return f"data/{name}{file.suffix}"


def consumer_files(session: Session, job: Job) -> dict[str, File]:
    """The consumer's files by their roles."""
    return {role: session.get_one(File, id) for role, id in job.files.items()}


def holdout_of(session: Session, job: Job) -> tuple[DataSettings, Any, File] | None:
    """How a draft's hold-out is read, the model that it must fit, and its file; None where settings do not say it."""
    linked = consumer_files(session, job)
    names, facts = {role: name_of(role, file) for role, file in linked.items()}, MarketFacts(0, 1, ())
    data = read(DataSettings, _data_section(job.spec.get("data", {}), names), "data", Faults())
    model = read_chosen(MODELS, job.spec.get("model", {}), "model", Faults(), NETWORK)
    if data is None or model is None or "holdout" not in linked or model.fault(facts):
        return None
    return data, model.build(facts), linked["holdout"]


def _sellers(session: Session, ids: Sequence[str]) -> list[Seller]:
    found = []
    for id in ids:
        offer = session.get_one(Offer, id)
        version = current_version(session, offer)
        owner = session.get_one(Organisation, offer.organisation_id).slug
        file = session.get_one(File, version.file_id) if version.file_id else None
        found.append(Seller(offer, version, owner, file))
    return found


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The specification, without anything that is the hub's to say."""
    for section in HUBS:
        if section in spec:
            raise InvalidError(f"{section} is the market's to write: leave that section out of the job")
    for section, setting in (("market", "name"), ("consumer", "name"), ("data", "holdout")):
        if isinstance(spec.get(section), Mapping) and setting in spec[section]:
            raise InvalidError(f"{section}.{setting} is the market's to write: leave it out of the job")
    for section, setting in (("consumer", "train"), ("data", "audit")):
        if isinstance(spec.get(section), Mapping) and isinstance(spec[section].get(setting), str):
            raise InvalidError(
                f"{section}.{setting} is a share such as 0.2 here: upload a file, and name it as the job's {setting}"
            )
    defence = spec["defence"] if isinstance(spec.get("defence"), Mapping) else {}
    for figure in sorted(set(defence) - {"kind"}):  # it may take back pay, so providers agree to one by its name
        raise InvalidError(
            f"defence.{figure} is fixed by the defence's name, to which the providers agree: leave it out, and "
            'write defence.kind = "none", "standard" or "strict" alone'
        )
    kind = spec["payment"].get("kind") if isinstance(spec.get("payment"), Mapping) else None
    if kind not in (None, "price-per-access"):
        raise InvalidError(
            f"payment.kind = {kind!r} does not fit contracts, which fix a price for one access: leave [payment] out"
        )
    return dict(spec)


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
    data = _data_section(data, files)
    rest = {section: value for section, value in spec.items() if section not in ("market", "consumer", "data")}
    return {"market": market, "consumer": consumer, "data": data, **rest}


def _data_section(data: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    audit = {"audit": files["audit"]} if "audit" in files else {}
    return {**data, "holdout": files.get("holdout", "holdout.csv"), **audit}  # one may stay with the consumer


def _parsed(settings: dict[str, Any]) -> MarketFile:
    with as_invalid():
        return parse_market(settings, "job")


def keep(job: Job, settings: Mapping[str, Any]) -> None:
    job.market = toml_text(settings)
    job.market_hash = hashlib.sha256(job.market.encode()).hexdigest()


def text_of(job: Job) -> str:
    """The job's market.toml, byte for byte as it was kept."""
    if not job.market or hashlib.sha256(job.market.encode()).hexdigest() != job.market_hash:
        raise LedgerError("the job's specification is not the one that was submitted: restore the hub's database")
    return job.market


def settings_of(job: Job) -> dict[str, Any]:
    return tomllib.loads(text_of(job))


def market_of(job: Job) -> MarketFile:
    """The same, parsed; or an InvalidError in market.toml's words."""
    return parsed_text(text_of(job))


@lru_cache(maxsize=64)
def parsed_text(text: str) -> MarketFile:
    return _parsed(tomllib.loads(text))


def leave_out(job: Job, providers: Collection[str]) -> None:
    """Takes these providers out, who have not agreed."""
    settings = settings_of(job)
    left = [one for one in settings.get("providers", []) if one["id"] not in providers]
    if len(left) < len(settings.get("providers", [])):
        keep(job, {**settings, "providers": left})
