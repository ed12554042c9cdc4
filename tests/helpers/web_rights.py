"""Who may ask for what: one row for every route of the hub's app."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from web_market import SPEC, WebMarket, policy, table

MARKET_TOML = """
[market]
name = "Delays"
budget = "0.40"
per_round = 2
[data]
holdout = "holdout.csv"
target = "late"
[model]
kind = "logistic"
[[providers]]
id = "north-sales"
"""
TINY = {"file": ("table.csv", table(5, rows=12))}


@dataclass(frozen=True)
class Row:
    """`who` may, by a token (or, where it takes a `person`, a session). Without `scope` its token may not. `wrong` has
    another role, and `other` the same role and nothing to do with the object."""

    who: str
    scope: str = "read"
    wrong: str | None = None
    other: str | None = None
    path: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    form: dict[str, Any] | None = None
    person: bool = False

    def given(self, market: WebMarket) -> dict[str, Any]:
        """The body; names of objects of the market stand for their ids."""
        if self.form is not None:
            return dict(self.form)
        return {} if self.body is None else {"json": _filled(self.body, market.ids)}

    def at(self, path: str, market: WebMarket) -> str:
        path = f"{path}?provider=north" if path.endswith("/ask") else path
        return path.format(**{name: market.ids.get(value, value) for name, value in self.path.items()})

    def ask(self, market: WebMarket, route: tuple[str, str], **given: Any) -> Any:
        """The request, by whoever may."""
        method, path = route[0], self.at(route[1], market)
        ask = market.ask_as_person if self.person else market.ask
        return ask(self.who, method, path, **self.given(market), **given)


def _filled(body: Any, ids: dict[str, str]) -> Any:
    if isinstance(body, dict):
        return {name: _filled(value, ids) for name, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, ids) for value in body]
    return ids.get(body, body) if isinstance(body, str) else body


def _of_job(scope: str = "read", job: str = "job", body: dict[str, Any] | None = None) -> Row:
    return Row("buyer", scope, wrong="north", other="rival", path={"job_id": job}, body=body)


def _of_offer(body: dict[str, Any] | None = None) -> Row:
    return Row("north", "offers", wrong="buyer", other="south", path={"offer_id": "offer"}, body=body)


def _of_operator(path: dict[str, str] | None = None, body: dict[str, Any] | None = None) -> Row:
    return Row("hub", "operate", wrong="buyer", other="north", path=path or {}, body=body)


PUBLIC = {("GET", "/healthz"), ("GET", "/v1/key"), ("GET", "/v1/openapi.json")}
"""Anybody may ask for these."""
PUBLIC_PAGES = ("/static/", "/sign-in", "/join", "/who-sees-what")
OWN_KEY = {("POST", "/v1/jobs/{job_id}/entries"), ("POST", "/v1/jobs/{job_id}/ask")}
"""What an own arbiter sends is its own key: these take no other."""
ENTRY = [0, "open", None, None, None, None, {}, "0" * 64]
OFFER = {"name": "Sales", "slug": "more", "policy": policy()}
RIGHTS: dict[tuple[str, str], Row] = {
    ("GET", "/metrics"): Row("hub", wrong="buyer"),
    ("GET", "/v1/me"): Row("buyer"),
    ("POST", "/v1/market/fee"): _of_operator(body={"basis_points": 100}),
    ("GET", "/v1/organisations"): Row("buyer"),
    ("POST", "/v1/organisations"): _of_operator(
        body={"name": "East", "slug": "east", "email": "ann@east.example", "provides": True}
    ),
    ("POST", "/v1/organisations/{organisation_id}/restore"): _of_operator({"organisation_id": "organisation"}),
    ("GET", "/v1/people"): Row("buyer", person=True),
    ("POST", "/v1/people"): Row("buyer", person=True, body={"email": "bob@buyer.example"}),
    ("POST", "/v1/people/{person_id}/link"): Row(
        "buyer", other="rival", wrong="north", path={"person_id": "person"}, person=True
    ),
    ("GET", "/v1/tokens"): Row("buyer"),
    ("POST", "/v1/tokens"): Row("buyer", person=True, body={"label": "new", "scopes": ["read"], "days": 1}),
    ("POST", "/v1/tokens/{token_id}/revoke"): Row(
        "buyer", other="rival", wrong="north", path={"token_id": "spare token"}, person=True
    ),
    ("POST", "/v1/files"): Row("buyer", "jobs", wrong="hub", form={"files": TINY}),
    ("GET", "/v1/files/{file_id}"): Row("buyer", other="rival", wrong="hub", path={"file_id": "holdout"}),
    ("GET", "/v1/files"): Row("buyer"),
    ("DELETE", "/v1/files/{file_id}"): Row("buyer", "jobs", other="rival", wrong="hub", path={"file_id": "spare file"}),
    ("GET", "/v1/offers"): Row("buyer"),
    ("GET", "/v1/offers/own"): Row("north"),
    ("GET", "/v1/offers/{offer_id}"): Row("buyer", other="south", path={"offer_id": "offer"}),
    ("POST", "/v1/offers"): Row("north", "offers", wrong="buyer", body={**OFFER, "file_id": "north's file"}),
    ("POST", "/v1/offers/{offer_id}/versions"): _of_offer({"file_id": "north's file"}),
    ("POST", "/v1/offers/{offer_id}/policy"): _of_offer({"policy": policy(price=6)}),
    ("GET", "/v1/queues"): Row("north"),
    ("GET", "/v1/contracts"): Row("buyer"),
    ("GET", "/v1/contracts/{contract_id}"): Row(
        "buyer", other="rival", wrong="north", path={"contract_id": "contract"}
    ),
    ("GET", "/v1/contracts/{contract_id}/schema.json"): Row(
        "south", other="north", wrong="rival", path={"contract_id": "contract"}
    ),
    ("POST", "/v1/contracts/{contract_id}/decide"): Row(
        "south", "offers", wrong="buyer", other="north", path={"contract_id": "contract"}, body={"agree": True}
    ),
    ("GET", "/v1/jobs"): Row("buyer"),
    ("POST", "/v1/jobs"): Row(
        "buyer",
        "jobs",
        wrong="north",
        body={"name": "New", "spec": SPEC, "files": {"holdout": "holdout"}, "offers": ["offer"]},
    ),
    ("POST", "/v1/jobs/from-market"): Row(
        "buyer",
        "jobs",
        wrong="north",
        form={"data": {"market": MARKET_TOML}, "files": {"file": ("holdout.csv", table(9))}},
    ),
    ("GET", "/v1/jobs/{job_id}"): _of_job(),
    ("POST", "/v1/jobs/{job_id}/change"): _of_job("jobs", body={"name": "Renamed"}),
    ("GET", "/v1/jobs/{job_id}/quote"): _of_job(),
    ("GET", "/v1/jobs/{job_id}/events"): _of_job(),
    ("GET", "/v1/jobs/{job_id}/rounds"): _of_job(),
    ("POST", "/v1/jobs/{job_id}/submit"): _of_job("jobs"),
    ("POST", "/v1/jobs/{job_id}/fund"): _of_job("money"),
    ("POST", "/v1/jobs/{job_id}/stop"): _of_job("jobs"),
    ("POST", "/v1/jobs/{job_id}/withdraw"): _of_job("jobs", "asked job"),
    ("GET", "/v1/jobs/{job_id}/live"): _of_job(job="asked job"),
    ("GET", "/v1/jobs/{job_id}/model"): _of_job(job="asked job"),
    ("GET", "/v1/jobs/{job_id}/statement.json"): _of_job(job="asked job"),
    ("GET", "/v1/jobs/{job_id}/statement.csv"): _of_job(job="asked job"),
    ("GET", "/v1/jobs/{job_id}/report.html"): _of_job(job="asked job"),
    ("GET", "/v1/jobs/{job_id}/market"): _of_job("jobs", "own job"),
    ("GET", "/v1/jobs/{job_id}/entries"): _of_job("jobs", "own job"),
    ("POST", "/v1/jobs/{job_id}/entries"): _of_job("jobs", "own job", {"entries": [ENTRY]}),
    ("POST", "/v1/jobs/{job_id}/ask"): _of_job("jobs", "own job"),
    ("GET", "/v1/jobs/{job_id}/connected"): _of_job("jobs", "own job"),
    ("GET", "/v1/cash"): Row("buyer"),
    ("POST", "/v1/deposits"): Row("buyer", "money", body={"amount": 500}),
    ("POST", "/v1/payouts"): Row("north", "money", body={"amount": 500}),
    ("POST", "/v1/cash/{record_id}/confirm"): _of_operator({"record_id": "cash"}, {"reference": ""}),
    ("POST", "/v1/cash/{record_id}/refuse"): _of_operator({"record_id": "cash"}, {"reason": "no money came"}),
    ("GET", "/v1/balances"): Row("buyer"),
    ("GET", "/v1/statement"): Row("buyer"),
    ("GET", "/v1/journal"): _of_operator(),
    ("GET", "/v1/journal/audit"): _of_operator(),
    ("GET", "/v1/journal/export"): Row("buyer"),
    ("GET", "/v1/receipts"): Row("north"),
    ("GET", "/v1/webhooks"): Row("buyer"),
    ("POST", "/v1/webhooks"): Row("buyer", "jobs money", body={"url": "https://buyer.example/other"}),
    ("GET", "/v1/webhooks/{webhook_id}/deliveries"): Row(
        "buyer", other="rival", wrong="north", path={"webhook_id": "webhook"}
    ),
    ("POST", "/v1/webhooks/{webhook_id}/remove"): Row(
        "buyer", "jobs money", other="rival", wrong="north", path={"webhook_id": "webhook"}
    ),
    # these shut somebody out, so they come last
    ("POST", "/v1/offers/{offer_id}/withdraw"): _of_offer(),
    ("POST", "/v1/people/{person_id}/disable"): _of_operator({"person_id": "rival's person"}),
    ("POST", "/v1/organisations/{organisation_id}/suspend"): _of_operator({"organisation_id": "rival"}),
}
