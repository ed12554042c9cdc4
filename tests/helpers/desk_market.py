"""A small market of the service: an operator, consumers with cash, providers with tables, all callers signed in."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from databazaar.service import credentials, files, journal, members, offers
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Offer
from databazaar.service.policy import read_policy
from databazaar.service.settings import Settings

SPEC: dict[str, Any] = {
    "market": {"budget": "0.40", "per_round": 2, "seed": 3},
    "data": {"target": "late", "task": "classification"},
    "model": {"kind": "logistic"},
    "oracle": {"kind": "local-sgd", "steps": 4, "batch_size": 8},
}


def table(seed: int, rows: int = 60, target: str = "late") -> bytes:
    """A CSV of three columns and a target that follows from them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    kinds = rng.choice(["van", "bike", "ship"], rows)
    y = (x[:, 0] + 0.5 * (kinds == "ship") + 0.3 * rng.normal(size=rows) > 0).astype(int)
    lines = [f"distance,weight,vehicle,{target}"]
    lines += [f"{a:.4f},{b:.4f},{kind},{label}" for (a, b), kind, label in zip(x, kinds, y, strict=True)]
    return ("\n".join(lines) + "\n").encode()


@dataclass
class DeskMarket:
    """Callers by the slug of their organisation; `hub` operates, `buyer` and `rival` consume, the others provide."""

    database: Database
    settings: Settings
    callers: dict[str, Caller]

    def __getitem__(self, slug: str) -> Caller:
        return self.callers[slug]

    def upload(self, session: Session, slug: str, content: bytes, name: str = "table.csv") -> str:
        return files.keep(session, self[slug], self.settings, name, io.BytesIO(content)).id

    def offer(self, session: Session, slug: str, seed: int = 0, name: str = "sales", **policy: Any) -> Offer:
        """A file offer that anybody gets at once for 5 cents, unless the policy says otherwise."""
        return offers.make_offer(
            session,
            self[slug],
            self.settings,
            name=f"Sales of {slug}",
            slug=name,
            description="Deliveries of last year.",
            policy=read_policy({"price": 5, "approval": "automatic", **policy}),
            file_id=self.upload(session, slug, table(seed)),
        )

    def pay_in(self, session: Session, slug: str, amount: int) -> None:
        key = f"deposit:{slug}{journal.lock(session).seq}"
        journal.post(session, "deposit", key, {"outside": -amount, journal.cash(slug): amount})


def desk_market(database: Database, settings: Settings) -> DeskMarket:
    """The market with everybody signed in by their first link."""
    with database.begin() as session:
        members.create_market(session, "Harbour market", "EUR")
        operator = members.make_operator(session, "Harbour", "hub", "ann@hub.example")
        callers = {"hub": credentials.redeem_link(session, operator.secret).caller}
        for slug, roles in {
            "buyer": {"consumes": True},
            "rival": {"consumes": True},
            "north": {"provides": True},
            "south": {"provides": True},
        }.items():
            email = f"ann@{slug}.example"
            invited = members.invite(session, callers["hub"], name=slug.title(), slug=slug, email=email, **roles)
            callers[slug] = credentials.redeem_link(session, invited.secret).caller
    return DeskMarket(database, settings, callers)
