"""A hub, as its operator, its consumers and its providers use it from Python. Amounts are in minor units."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from databazaar.client import shapes
from databazaar.client.connection import Connection, Files, place, read
from databazaar.client.receipts import keys_of
from databazaar.client.shapes import Shape
from databazaar.errors import BazaarError

Answer = TypeVar("Answer")
Download = Literal["model", "statement.json", "statement.csv", "report.html"]
OVER = frozenset({"settled", "refunded", "failed"})
STATE = ("state", "reason", "budget", "paid", "fee", "refunded")
POLL = 1.0
"""Seconds between two looks at a job that is watched."""


class Endpoint(Generic[Answer]):
    """A method of `Hub` by the address that it asks. It takes the ids in the path, then the fields of the body or the
    query, in this order or by name; those with a default may be left out."""

    def __init__(
        self,
        method: str,
        path: str,
        answer: Callable[[Any], Answer],
        fields: Sequence[str],
        defaults: Mapping[str, Any],
    ) -> None:
        self.method, self.path, self.answer, self.defaults = method, path, answer, defaults
        self.names = [*re.findall(r"{(\w+)}", path), *fields, *defaults]

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name

    def __get__(self, hub: Hub, owner: type | None = None) -> Callable[..., Answer]:
        return partial(self.ask, hub)

    def ask(self, hub: Hub, *values: Any, **named: Any) -> Answer:
        given = {**self.defaults, **dict(zip(self.names, values, strict=False)), **named}
        if len(values) > len(self.names) or sorted(given) != sorted(self.names):
            raise TypeError(f"{self.__name__}() takes {', '.join(self.names) or 'nothing'}")
        parts = [str(given.pop(part[1:-1])) if part[0] == "{" else part for part in self.path.split("/")]
        return self.answer(self.told(hub, place(*parts), {name: one for name, one in given.items() if one is not None}))

    def told(self, hub: Hub, path: str, fields: dict[str, Any]) -> Any:
        return hub.told(self.method, path, **({"params": fields} if self.method == "GET" else {"json": fields or None}))


def get(path: str, shape: type[Shape], **defaults: Any) -> Endpoint[Shape]:
    return Endpoint("GET", path, partial(read, shape), (), defaults)


def post(path: str, shape: type[Shape], *fields: str, **defaults: Any) -> Endpoint[Shape]:
    return Endpoint("POST", path, partial(read, shape), fields, defaults)


class Pages(Endpoint[Iterator[Shape]]):
    """A list that the hub gives part by part."""

    def __init__(self, path: str, shape: type[Shape], cursor: str = "after", **defaults: Any) -> None:
        super().__init__("GET", path, lambda told: (read(shape, one) for one in told), (), defaults)
        self.cursor = cursor

    def told(self, hub: Hub, path: str, fields: dict[str, Any]) -> Iterator[Any]:
        while True:
            page = super().told(hub, path, fields)
            yield from page["items"]
            if page["next"] is None:
                return
            fields[self.cursor] = page["next"]


@dataclass(frozen=True)
class Seen:
    """One round of a job, or that its state has changed."""

    kind: Literal["round", "state"]
    data: dict[str, Any]


class Hub(Connection):
    """One hub, by its address and an API token; what it refuses is a HubError with its own sentence.

    Every POST is repeated where the line fails, under one Idempotency-Key, so nothing is done twice. Answers are
    objects of `databazaar.client.shapes`; docs/reference/http-api.md says what each does and takes.
    """

    me = get("me", shapes.Caller)
    set_fee = post("market/fee", shapes.Market, "basis_points")
    organisations = Pages("organisations", shapes.Organisation)
    invite = post("organisations", shapes.Invitation, "name", "slug", "email", consumes=False, provides=False)
    suspend = post("organisations/{organisation_id}/suspend", shapes.Organisation)
    restore = post("organisations/{organisation_id}/restore", shapes.Organisation)
    people = Pages("people", shapes.Person, organisation_id=None)
    disable_person = post("people/{person_id}/disable", shapes.Person)
    tokens = Pages("tokens", shapes.Token)
    issue_token = post("tokens", shapes.IssuedToken, "label", "scopes", days=90, organisation_id=None)
    revoke_token = post("tokens/{token_id}/revoke", shapes.Token)
    webhooks = Pages("webhooks", shapes.Webhook)
    add_webhook = post("webhooks", shapes.NewWebhook, "url")
    deliveries = Pages("webhooks/{webhook_id}/deliveries", shapes.Delivery)
    remove_webhook = post("webhooks/{webhook_id}/remove", shapes.Webhook)

    file = get("files/{file_id}", shapes.FileColumns)
    files = Pages("files", shapes.FileUses)
    delete_file = Endpoint("DELETE", "files/{file_id}", partial(read, shapes.File), (), {})
    offers = Pages("offers", shapes.Offer)
    offer = get("offers/{offer_id}", shapes.Offer)
    own_offers = Pages("offers/own", shapes.OwnOffer)
    make_file_offer = post("offers", shapes.OwnOffer, "name", "slug", "policy", "file_id", description="")
    make_site_offer = post(
        "offers", shapes.OwnOffer, "name", "slug", "policy", "site", "columns", rows=None, description=""
    )
    new_version = post("offers/{offer_id}/versions", shapes.Version, "file_id")
    change_policy = post("offers/{offer_id}/policy", shapes.OwnOffer, "policy")
    withdraw_offer = post("offers/{offer_id}/withdraw", shapes.OwnOffer)
    queues = Pages("queues", shapes.Queue)

    requests = Pages("contracts", shapes.Contract, state="requested", party="provider")
    decide = post("contracts/{contract_id}/decide", shapes.Decided, "agree", reason="")
    contracts = Pages("contracts", shapes.Contract, job_id=None, state=None, party=None)
    contract = get("contracts/{contract_id}", shapes.Contract)
    receipts = Pages("receipts", shapes.Receipt, contract_id=None)

    jobs = Pages("jobs", shapes.JobSummary, everybodys=None)
    job = get("jobs/{job_id}", shapes.Job)
    draft = post("jobs", shapes.Job, "name", "spec", "offers", files=None, mode="hosted")
    change = post("jobs/{job_id}/change", shapes.Job, name=None, spec=None, offers=None, files=None)
    submit = post("jobs/{job_id}/submit", shapes.Job)
    quote = get("jobs/{job_id}/quote", shapes.Quote)
    fund = post("jobs/{job_id}/fund", shapes.Job)
    stop = post("jobs/{job_id}/stop", shapes.Job)
    withdraw = post("jobs/{job_id}/withdraw", shapes.Job)
    events = Pages("jobs/{job_id}/events", shapes.Event)

    accounts = Pages("balances", shapes.Account)
    statement = Pages("statement", shapes.Movement, "before")
    deposit = post("deposits", shapes.Cash, "amount")
    payout = post("payouts", shapes.Cash, "amount", source="earned")
    cash = Pages("cash", shapes.Cash, state=None)
    confirm = post("cash/{record_id}/confirm", shapes.Cash, reference="")
    refuse = post("cash/{record_id}/refuse", shapes.Cash, "reason")
    journal = Pages("journal", shapes.OperatorEntry, "before")
    audit_journal = get("journal/audit", shapes.Audit)

    def balances(self) -> dict[str, int]:
        """What one's own accounts hold, by name."""
        return {account.name: account.balance for account in self.accounts()}

    def public_keys(self) -> list[str]:
        """The key that the hub signs receipts with now, and those that it had before: a receipt names its own."""
        return keys_of(self.told("GET", "/v1/key"))

    def export_journal(self, target: Path) -> Path:
        """Lines of JSON, which `databazaar.client.journal` checks without the hub."""
        return self.download_to("/v1/journal/export", target)

    def schema(self, contract_id: str, target: Path) -> Path:
        """Writes the schema.json by which a site will be asked, for its provider to look at and to accept."""
        return self.download_to(place("contracts", contract_id, "schema.json"), target)

    def download(self, job_id: str, what: Download, target: Path) -> Path:
        """Of a job that is over: the model as a zip, the statement, or the report."""
        return self.download_to(place("jobs", job_id, what), target)

    def rounds(self, job_id: str, after: int = 0, most: int = 1000) -> list[dict[str, Any]]:
        params = {"after": after, "limit": most}
        found: list[dict[str, Any]] = self.told("GET", place("jobs", job_id, "rounds"), params=params)["items"]
        return found

    def upload(self, path: Path) -> shapes.File:
        """A table, CSV or Parquet: a provider's data or a consumer's hold-out."""
        with _opened(path) as stream:
            return read(shapes.File, self.send("/v1/files", {}, [("file", (path.name, stream))]))

    def draft_from_market(self, market: Path, mode: str = "hosted") -> shapes.Job:
        """A new job from a market.toml, whose providers name offers by slug, with the files that it names."""
        try:
            with _opened(market) as file:
                text: str = file.read().decode("utf-8-sig")
            settings = tomllib.loads(text)
        except (ValueError, RecursionError) as fault:
            raise BazaarError(f"{market}: the file is not valid TOML: {fault}: correct that line") from None
        paths = named_files(settings) if mode == "hosted" else []
        with ExitStack() as stack:
            sent: Files = [("file", (path.name, stack.enter_context(_opened(market.parent / path)))) for path in paths]
            return read(shapes.Job, self.send("/v1/jobs/from-market", {"market": text, "mode": mode}, sent))

    def watch(self, job_id: str, since: int = 0) -> Iterator[Seen]:
        """Every round after `since` and every change of state, until the job is over; it asks once a second."""
        state: dict[str, Any] = {}
        while True:
            job = self.job(job_id)
            while found := self.rounds(job_id, since):
                yield from (Seen("round", one) for one in found)
                since = found[-1]["round"]
            if state != (state := {name: getattr(job, name) for name in STATE}):
                yield Seen("state", state)
            if job.state in OVER:
                return
            time.sleep(POLL)


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as reason:
        raise BazaarError(f"{path} cannot be read ({reason.strerror}): check the path") from None


def named_files(settings: Mapping[str, Any]) -> list[Path]:
    """The files that a market.toml names for its consumer; no two may have the same name.

    >>> [str(path) for path in named_files({"data": {"holdout": "a/own.csv", "audit": 0.2}, "consumer": {"train": 0}})]
    ['a/own.csv']
    """
    sections = (("data", "holdout"), ("consumer", "train"), ("data", "audit"))
    values = [settings[name].get(key) for name, key in sections if isinstance(settings.get(name), Mapping)]
    paths = [Path(value) for value in values if isinstance(value, str)]
    if len({path.name for path in paths}) < len(set(paths)):
        raise BazaarError("market.toml names two files of the same name: rename one of them")
    return list(dict.fromkeys(paths))
