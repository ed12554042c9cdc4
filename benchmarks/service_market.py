"""A hub's market to be measured: nine banks that sell, consumers with cash, and jobs that are agreed and not funded."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from databazaar.data.fraud import TARGET, fraud_banks
from databazaar.service import cash, credentials, files, jobs, members, offers, submission
from databazaar.service.caller import SCOPES, Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.upgrade import upgrade
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings

PRICE, PER_ROUND = 1_00, 4
SPEC: dict[str, Any] = {
    "data": {"target": TARGET},
    "model": {"kind": "logistic"},
    "oracle": {"kind": "local-sgd", "steps": 10, "batch_size": 32},
}


@dataclass(frozen=True)
class Bought:
    """A job, and the secret of a token of its consumer."""

    job_id: str
    token: str


def make_market(settings: Settings, database: Database, consumers: int, count: int, accesses: int) -> list[Bought]:
    """So many jobs, dealt out among the consumers; each may pay for so many accesses. They differ by their seeds."""
    upgrade(database)
    with database.begin() as session:
        members.create_market(session, "The measured market", "EUR")
        invited = members.make_operator(session, "Market Office", "market-office", "office@market.example")
        operator = Caller.of(invited.organisation, person_id=invited.person.id)
        story = fraud_banks()
        for bank in story.banks:
            provider = _invited(session, operator, bank.id, provides=True)
            offers.make_offer(
                session,
                provider,
                settings,
                name="Card payments",
                slug="cards",
                description="Labelled transactions of the last year.",
                policy=Policy(price=PRICE, approval="automatic"),
                file_id=_kept(session, provider, settings, bank.frame),
            )
        chosen = [f"{bank.id}-cards" for bank in story.banks]
        bought: list[Bought] = []
        buyers = [_buyer(session, operator, settings, place, story.holdout) for place in range(consumers)]
        for seed in range(count):
            caller, token, holdout = buyers[seed % consumers]
            market = {"budget": f"{accesses}.00", "per_round": PER_ROUND, "seed": seed}
            spec = {**SPEC, "market": market}
            kept = {"holdout": holdout}
            job = jobs.draft(session, caller, settings, name=f"Job {seed}", spec=spec, files=kept, offers=chosen)
            submission.submit(session, caller, settings, job.id)
            cash.request(session, caller, settings, "deposit", accesses * PRICE)
            bought.append(Bought(job.id, token))
    return bought


def _buyer(
    session: Session, operator: Caller, settings: Settings, place: int, holdout: pd.DataFrame
) -> tuple[Caller, str, str]:
    """A consumer, its token's secret and its hold-out's id."""
    caller = _invited(session, operator, f"consumer-{place}", consumes=True)
    scopes = [scope for scope in SCOPES if scope in caller.scopes]
    _, secret = credentials.issue_token(session, caller, label="measured", scopes=scopes, days=1)
    return caller, secret, _kept(session, caller, settings, holdout)


def _invited(session: Session, operator: Caller, slug: str, **roles: bool) -> Caller:
    invited = members.invite(session, operator, name=slug, slug=slug, email=f"ann@{slug}.example", **roles)
    return Caller.of(invited.organisation, person_id=invited.person.id)


def _kept(session: Session, caller: Caller, settings: Settings, frame: pd.DataFrame) -> str:
    stream = io.BytesIO(frame.to_csv(index=False).encode())
    return files.keep(session, caller, settings, "table.csv", stream).id
