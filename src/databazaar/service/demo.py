"""A market to look at: one operator, three consumers, nine providers, two jobs on their way. All of it is made up.

It is made with the commands that everybody uses, so what is there has come about as it would in a real market.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.data.fraud import BANKS, fraud_banks
from databazaar.errors import BazaarError
from databazaar.service import cash, files, jobs, members, offers, submission
from databazaar.service.caller import Caller
from databazaar.service.credentials import link_for
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Market, Organisation, Person
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

NAME, CURRENCY = "The demo market", "EUR"
OPERATOR = ("Market Office", "market-office")
CONSUMERS = (("Tern Card", "tern-card"), ("Pier Payments", "pier-payments"), ("Sandbank", "sandbank"))
BY_HAND = "coastal-direct"
"""The provider that decides each request itself: the third consumer's job waits for it."""
DEPOSIT = 5_000_00
NETWORK: dict[str, Any] = {"model": {"kind": "mlp", "hidden": [16]}, "training": {"halve_every": 60}}
SPECS: tuple[dict[str, Any], ...] = (
    {"market": {"budget": "2000.00", "per_round": 5, "seed": 1}, **NETWORK},
    {"market": {"budget": "1500.00", "per_round": 4, "seed": 2}, "model": {"kind": "auto"}},
    {"market": {"budget": "800.00", "per_round": 4, "seed": 3}, **NETWORK},
)
EVERY: dict[str, Any] = {
    "data": {"target": "fraud"},
    "stops": [{"kind": "no-progress"}],
    "defence": {"kind": "standard"},
}


def make_demo(settings: Settings, database: Database) -> dict[str, str]:
    """Makes the market, or finds the one that an earlier demo has left in the same home; gives who one can be in it,
    each with the one-time link that signs in as them."""
    with database.begin() as session:
        market = session.get(Market, 1)
        if market is not None and market.name != NAME:
            raise BazaarError(f"{settings.home} holds a market that is no demo: give another folder with --home")
        if market is None:
            _make(session, settings)
        return _links(session, settings.address)


def _make(session: Session, settings: Settings) -> None:
    members.create_market(session, NAME, CURRENCY, 2)
    invited = members.make_operator(session, *OPERATOR, f"office@{OPERATOR[1]}.example")
    operator = Caller.of(invited.organisation, person_id=invited.person.id)
    for bank in fraud_banks().banks:
        provider = _invited(session, operator, _title(bank.id), bank.id, provides=True)
        file = files.keep(session, provider, settings, f"{bank.id}.csv", _csv(bank.frame))
        policy = Policy(price=1_00, approval="by hand" if bank.id == BY_HAND else "automatic")
        offers.make_offer(
            session,
            provider,
            settings,
            name=f"Card payments of {_title(bank.id)}",
            slug="cards",
            description="Transactions of the last year, each with whether it turned out to be fraud.",
            policy=policy,
            file_id=file.id,
        )
    for place, (name, slug) in enumerate(CONSUMERS):
        consumer = _invited(session, operator, name, slug, consumes=True)
        _ask_for(session, consumer, settings, place)
        record = cash.request(session, consumer, settings, "deposit", DEPOSIT)
        cash.confirm(session, operator, record.id, "demo: no real money")
        if place < 2:
            jobs.fund(session, consumer, jobs.own_jobs(session, consumer)[0].id)


def _ask_for(session: Session, consumer: Caller, settings: Settings, place: int) -> None:
    """A job over the providers that decide by themselves; the third consumer asks the careful one, too."""
    story = fraud_banks(seed=10 + place)
    holdout, audit = (
        files.keep(session, consumer, settings, name, _csv(frame)).id
        for name, frame in (("holdout.csv", story.holdout), ("audit.csv", story.test))
    )
    chosen = [f"{bank.id}-cards" for bank in BANKS if place == 2 or bank.id != BY_HAND]
    job = jobs.draft(
        session,
        consumer,
        settings,
        name="Fraud model for a new card",
        spec={**SPECS[place], **EVERY},
        files={"holdout": holdout, "audit": audit},
        offers=chosen,
    )
    submission.submit(session, consumer, settings, job.id)


def _invited(session: Session, operator: Caller, name: str, slug: str, **roles: bool) -> Caller:
    invited = members.invite(session, operator, name=name, slug=slug, email=f"ann@{slug}.example", **roles)
    return Caller.of(invited.organisation, person_id=invited.person.id)


def _title(slug: str) -> str:
    return slug.replace("-", " ").title()


def _csv(frame: pd.DataFrame) -> io.BytesIO:
    return io.BytesIO(frame.to_csv(index=False).encode())


def _links(session: Session, address: str) -> dict[str, str]:
    """For the operator, every consumer, the provider that is paid most and the one that is asked by hand."""
    shown = {OPERATOR[1]: "operator", **{slug: "consumer" for _, slug in CONSUMERS}}
    shown |= {BANKS[0].id: "provider", BY_HAND: "provider"}
    links = {}
    for slug, role in shown.items():
        theirs = select(Organisation.name, Person).join(Person, Person.organisation_id == Organisation.id)
        name, person = session.execute(theirs.where(Organisation.slug == slug).limit(1)).one()
        links[f"{name}, {role}"] = f"{address}/join#{link_for(session, person)}"
    return links
