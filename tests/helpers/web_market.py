"""A small market behind the hub's real app: tokens of everybody, objects of each kind, and clients that ask."""

from __future__ import annotations

import datetime as dt
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from fastapi import FastAPI
from sqlalchemy import update

from databazaar.service import cash, contracts, credentials, jobs, outbox, submission
from databazaar.service.caller import allowed_scopes
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Token, now
from databazaar.service.http.app import create_app
from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security import CSRF_HEADER, csrf_token
from databazaar.service.http.security_limits import Buckets, Limits
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would have us install another package than httpx
    from starlette.testclient import TestClient

__all__ = ["ENDLESS", "SPEC", "MakeMarket", "TestClient", "WebMarket", "table", "web_market"]


def ENDLESS() -> Limits:  # noqa: N802
    """Limits that no test reaches."""
    return Limits(*(Buckets(per_second=1e9, burst=1e9) for _ in fields(Limits)))


class MakeMarket(Protocol):
    """A new market on SQLite or PostgreSQL, with settings that differ from the usual ones."""

    def __call__(self, kind: str, **settings: Any) -> WebMarket: ...


@dataclass
class WebMarket:
    """`tokens` are secrets by slug, of API tokens with all scopes; `ids` are objects of the buyer's and of north's."""

    desk: DeskMarket
    app: FastAPI
    tokens: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Database:
        return self.desk.database

    @property
    def settings(self) -> Settings:
        return self.desk.settings

    @contextmanager
    def client(self, token: str = "") -> Iterator[TestClient]:
        """A client of the app as it is, without its lifespan: no supervisor, no task beside."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        yield TestClient(self.app, base_url=self.settings.address, headers=headers)

    def ask(self, who: str, method: str, path: str, **given: Any) -> Any:
        """One request by `who`, a slug or a token's secret."""
        with self.client(self.tokens.get(who, who)) as client:
            return client.request(method, path, **given)

    def ask_as_person(self, slug: str, method: str, path: str, **given: Any) -> Any:
        """One request by the organisation's first person, who has signed in in a browser."""
        secret = self.session_of(slug)
        with self.client() as client:
            client.cookies.set(cookie_name(self.settings), secret)
            headers = {CSRF_HEADER: csrf_token(secret), **given.pop("headers", {})}
            return client.request(method, path, headers=headers, **given)

    def token(self, slug: str, *scopes: str) -> str:
        """A new token of an organisation with these scopes alone."""
        caller = self.desk[slug]
        given = scopes or tuple(allowed_scopes(caller.operates, caller.consumes, caller.provides))
        with self.database.begin() as session:
            return credentials.issue_token(session, caller, label="test", scopes=given, days=30)[1]

    def spoil(self, secret: str, **changes: Any) -> None:
        """Changes the row of a token, such as when it expires."""
        from databazaar.service.credentials import digest_of

        with self.database.begin() as session:
            session.execute(update(Token).where(Token.digest == digest_of(secret)).values(**changes))

    def revoked(self, slug: str) -> str:
        secret = self.token(slug)
        self.spoil(secret, revoked_at=now())
        return secret

    def expired(self, slug: str) -> str:
        secret = self.token(slug)
        self.spoil(secret, expires_at=now() - dt.timedelta(seconds=1))
        return secret

    def session_of(self, slug: str) -> str:
        """The secret of a new session of the organisation's first person."""
        with self.database.begin() as session:
            person_id = self.desk[slug].person_id
            assert person_id is not None
            link = credentials.issue_link(session, self.desk["hub"], person_id)
            return credentials.redeem_link(session, link).session_secret

    def agreed_job(self, name: str = "Delays") -> str:
        """A job of the buyer's with north, ready to be funded."""
        with self.database.begin() as session:
            buyer = self.desk["buyer"]
            holdout = self.desk.upload(session, "buyer", table(9), "holdout.csv")
            job = jobs.draft(
                session,
                buyer,
                self.settings,
                name=name,
                spec=SPEC,
                files={"holdout": holdout},
                offers=[self.ids["offer"]],
            )
            return submission.submit(session, buyer, self.settings, job.id).id

    @contextmanager
    def put_back(self) -> Iterator[WebMarket]:
        """What is done here is undone at the end. For SQLite."""
        path = self.database.engine.url.database
        assert path is not None
        with closing(sqlite3.connect(path)) as used, closing(sqlite3.connect(":memory:")) as kept:
            used.backup(kept)
            yield self
            kept.backup(used)

    def end(self, job_id: str) -> None:
        with self.database.begin() as session:
            jobs.withdraw(session, self.desk["buyer"], job_id)


def web_market(database: Database, settings: Settings, limits: Limits | None = None) -> WebMarket:
    """The market with one of everything."""
    desk = desk_market(database, settings)
    made = WebMarket(desk, create_app(settings, database, supervise=False, limits=limits or ENDLESS()))
    with database.begin() as session:
        for slug, caller in desk.callers.items():
            scopes = sorted(allowed_scopes(caller.operates, caller.consumes, caller.provides))
            token, made.tokens[slug] = credentials.issue_token(session, caller, label="all", scopes=scopes, days=30)
            made.ids[f"token of {slug}"] = token.id
        buyer, north = desk["buyer"], desk["north"]
        made.ids["offer"] = desk.offer(session, "north").id
        made.ids["shy offer"] = desk.offer(session, "south", seed=1, approval="by hand").id
        made.ids["holdout"] = desk.upload(session, "buyer", table(9), "holdout.csv")
        made.ids["spare file"] = desk.upload(session, "buyer", table(9), "spare.csv")
        made.ids["north's file"] = desk.upload(session, "north", table(3))
        named: Any = {"spec": SPEC, "files": {"holdout": made.ids["holdout"]}}
        made.ids["job"] = jobs.draft(session, buyer, settings, name="Delays", offers=[made.ids["offer"]], **named).id
        asked = jobs.draft(session, buyer, settings, name="Asked", offers=[made.ids["shy offer"]], **named)
        submission.submit(session, buyer, settings, asked.id)
        made.ids["asked job"] = asked.id
        own = jobs.draft(
            session, buyer, settings, name="Own", spec=SPEC, files={}, offers=[made.ids["offer"]], mode="own"
        )
        made.ids["own job"] = own.id
        made.ids["contract"] = contracts.own_contracts(session, buyer, asked.id)[0].id
        made.ids["webhook"] = outbox.add_webhook(session, buyer, "https://buyer.example/hook").webhook.id
        made.ids["cash"] = cash.request(session, buyer, settings, "deposit", 100_000).id
        assert buyer.person_id and north.person_id
        made.ids["person"], made.ids["organisation"] = buyer.person_id, buyer.organisation_id
        made.ids["rival"], made.ids["rival's person"] = desk["rival"].organisation_id, str(desk["rival"].person_id)
        made.ids["spare token"] = credentials.issue_token(session, buyer, label="spare", scopes=["read"], days=1)[0].id
    return made


def policy(**changes: Any) -> dict[str, Any]:
    return {"price": 5, "approval": "automatic", **changes}
