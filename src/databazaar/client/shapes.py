"""The objects of a hub, defined once: the service makes them from its tables, its API and its pages show them, and the
client gives them to its users. Amounts are in minor units of the market's currency; moments are in UTC.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

Shape = TypeVar("Shape", bound="HubObject")


class HubObject(BaseModel):
    """What is not known of an answer is left out: the hub may be newer than the client."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, row: object, **more: Any) -> Self:
        """The attributes of a row that the shape has, and `more`.

        >>> Account.of(Cash, name="fees", balance=3)
        Account(name='fees', balance=3)
        """
        return cls(**{name: getattr(row, name) for name in cls.model_fields if name not in more}, **more)


class Identified(HubObject):
    id: str
    created_at: dt.datetime


class Market(HubObject):
    """One market has one currency; a fee of 100 basis points is 1 % of what providers are paid, on top."""

    name: str
    currency: str
    decimals: int
    fee_basis_points: int


class Organisation(Identified):
    """An organisation and its roles."""

    slug: str
    name: str
    operates: bool
    consumes: bool
    provides: bool
    suspended_at: dt.datetime | None


class Person(Identified):
    """A person of an organisation."""

    organisation_id: str
    email: str
    name: str
    disabled_at: dt.datetime | None


class Token(Identified):
    """An API token; never its secret."""

    label: str
    scopes: list[str]
    expires_at: dt.datetime
    revoked_at: dt.datetime | None


class Caller(HubObject):
    """Who the token or the session is, and what it may do."""

    organisation: Organisation
    scopes: list[str]
    person_id: str | None
    market: Market


class Invitation(HubObject):
    """`link` signs the person in, once. The part after # reaches no server and no log: pass it on in private."""

    organisation: Organisation
    person: Person
    link: str


class IssuedToken(HubObject):
    """`secret` is shown this once."""

    token: Token
    secret: str


class File(Identified):
    """`digest` is the SHA-256 of the file."""

    name: str
    digest: str
    size: int


class FileColumns(File):
    """With the names and kinds of its columns."""

    rows: int
    columns: list[dict[str, Any]]


class FileUse(HubObject):
    """What a file is, or was, used for: a job, an offer, or a contract about that offer. `needed` says whether it still
    is: then the file cannot be deleted."""

    kind: str
    id: str
    name: str
    needed: bool


class FileUses(File):
    """With what it is used for."""

    uses: list[FileUse]


class OwnOffer(Identified):
    """An offer as its provider sees it. `kind` is file or site, and `policy` says what its provider allows."""

    slug: str
    name: str
    description: str
    kind: str
    site: str | None
    policy: dict[str, Any]
    version: int
    withdrawn_at: dt.datetime | None


class Offer(Identified):
    """An offer as consumers see it: columns and terms, never data. `terms` are the policy but for other consumers'
    names."""

    slug: str
    name: str
    description: str
    kind: str
    provider: str
    provider_name: str
    price: int
    terms: dict[str, Any]
    version: int
    rows: int | None
    columns: list[dict[str, Any]]


class Version(Identified):
    """The data of an offer as they were from some time on; a contract pins one."""

    offer_id: str
    number: int
    digest: str | None
    rows: int | None
    columns: list[dict[str, Any]]


class Queue(HubObject):
    """Jobs of one offer by how far they are: `requested` of its provider, `agreed` and not funded, `waiting` for a
    place to run, `running`."""

    offer_id: str
    offer: str
    provider: str
    requested: int
    agreed: int
    waiting: int
    running: int


class Decided(HubObject):
    """A contract after its provider's yes or no."""

    id: str
    job_id: str
    state: str
    reason: str
    decided_at: dt.datetime | None


class Contract(Decided):
    """A contract as its two parties see it: of the consumer its name, and of the job its name and what it asks for.

    `job_state` is null for a provider whose contract is not active. `kind` is the offer's, file or site. `mode` is
    hosted or own: then the updates go to the consumer. It helps to predict `target`, by a `task` of classification or
    regression, from `columns`, null where they are not known before the first ask. `rows` pass through the model in one
    ask; where the `learner` `trains_on_rows`, an access buys no update, and so many rows train the model inside the
    hub. `defence` is none, standard or strict: the rules by which the job holds pay back. `fingerprint` is the
    schema's, for a site. `accesses`, `paid` and `epsilon` are there once the job is settled.
    """

    job_name: str
    job_state: str | None
    model: str
    learner: str
    trains_on_rows: bool
    mode: str
    target: str
    task: str
    columns: list[str] | None
    rows: int | None
    defence: str
    fingerprint: str | None
    consumer: str
    consumer_name: str
    provider: str
    provider_name: str
    offer_id: str
    offer: str
    offer_name: str
    kind: str
    version: int
    digest: str | None
    price: int
    terms: dict[str, Any]
    accesses: int | None
    paid: int | None
    epsilon: float | None
    requested_at: dt.datetime
    expires_at: dt.datetime
    ended_at: dt.datetime | None


class JobSummary(Identified):
    """`state` goes from draft over submitted, agreed, funded, queued, running and settling to settled, refunded or
    failed. Amounts are in minor units; `paid`, `fee` and `refunded` are there once the job is over.
    `stopped_by` is consumer or operator where one of them has asked to stop it, and empty otherwise.
    `reason` is a sentence for people, and `reason_code` what programs compare."""

    name: str
    mode: str
    state: str
    reason: str
    reason_code: str
    budget: int
    fee_basis_points: int
    escrow: int
    paid: int | None
    fee: int | None
    refunded: int | None
    run_head: str | None
    model_hash: str | None
    stopped_by: str
    attempts: int
    changed_at: dt.datetime


class Job(JobSummary):
    """With what was asked for."""

    organisation_id: str
    spec: dict[str, Any]
    files: dict[str, str]
    offers: list[str]


class Event(HubObject):
    """What has happened to a job; `number` counts them."""

    number: int
    state: str
    detail: str
    code: str
    at: dt.datetime


class Quote(HubObject):
    """`escrow` is taken from the consumer's cash: the budget and `most_fee`; what is not spent comes back. `wait` are
    seconds before it starts, null where nothing is known. `quote` is as `bazaar quote --json` gives it."""

    budget: int
    fee_basis_points: int
    most_fee: int
    escrow: int
    wait: float | None
    quote: dict[str, Any]


class Cash(Identified):
    """`kind` is deposit, payout or withdraw; `state` requested, done or refused."""

    organisation_id: str
    kind: str
    state: str
    amount: int
    reference: str
    reason: str
    decided_at: dt.datetime | None


class Account(HubObject):
    """`cash:…` is money at the market, `escrow:…` what is locked for a job, `earned:…` a provider's pay. `balance` is
    in minor units of the market's currency."""

    name: str
    balance: int


class Movement(HubObject):
    """What one entry of the journal did to one account. `hash` is the journal's head at that entry."""

    seq: int
    kind: str
    at: dt.datetime
    account: str
    amount: int
    job_id: str | None
    hash: str


class OperatorEntry(HubObject):
    """One entry of the journal with all its postings, as the operator sees it."""

    seq: int
    kind: str
    key: str
    job_id: str | None
    at: dt.datetime
    body: dict[str, Any]
    hash: str
    postings: dict[str, int]


class Audit(HubObject):
    """Whether every entry, sum and balance of the journal is as recorded."""

    ok: bool
    entries: int
    head: str
    message: str


class Receipt(Identified):
    """`signature` is the hub's, by Ed25519 over the canonical JSON of `body` with its kind, "hub-receipt"."""

    contract_id: str
    body: dict[str, Any]
    signature: str


class Webhook(Identified):
    """Where an organisation is told what happens."""

    url: str


class Delivery(Identified):
    """An event that a webhook was told, or is to be told: for about a day, until it answers with 2xx."""

    event: str
    body: dict[str, Any]
    attempts: int
    delivered_at: dt.datetime | None
    given_up_at: dt.datetime | None


class NewWebhook(HubObject):
    """`secret` is shown this once. Bazaar-Signature is the HMAC-SHA256 under it of Bazaar-Timestamp, a point and the
    body, in hexadecimal digits."""

    webhook: Webhook
    secret: str


class RunStatus(HubObject):
    """How far the run of an own arbiter has come at the hub, and whom its next round must ask."""

    entries: int = 0
    head: str = ""
    round: int = 0
    asked: tuple[str, ...] = ()
    closed: bool = False


class OwnMarket(HubObject):
    """`market` is the job's market.toml as its arbiter plays it, and `consumer` the name by which providers know the
    consumer."""

    market: dict[str, Any]
    consumer: str
