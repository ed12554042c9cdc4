"""What a hub answers, as the dictionaries that come of its JSON. Amounts are in minor units; moments are text."""

from __future__ import annotations

from typing import Any, TypedDict


class Market(TypedDict):
    name: str
    currency: str
    decimals: int
    fee_basis_points: int


class Organisation(TypedDict):
    id: str
    slug: str
    name: str
    operates: bool
    consumes: bool
    provides: bool
    suspended_at: str | None
    created_at: str


class Person(TypedDict):
    id: str
    organisation_id: str
    email: str
    name: str
    disabled_at: str | None
    created_at: str


class Token(TypedDict):
    id: str
    label: str
    scopes: list[str]
    created_at: str
    expires_at: str
    revoked_at: str | None


class Caller(TypedDict):
    organisation: Organisation
    scopes: list[str]
    person_id: str | None
    market: Market


class Invitation(TypedDict):
    organisation: Organisation
    person: Person
    link: str


class IssuedToken(TypedDict):
    token: Token
    secret: str


class File(TypedDict):
    id: str
    name: str
    digest: str
    size: int
    created_at: str


class FileColumns(File):
    rows: int
    columns: list[dict[str, Any]]


class FileUse(TypedDict):
    kind: str
    id: str
    name: str
    needed: bool


class FileUses(File):
    uses: list[FileUse]


class DeletedFile(File):
    deleted_at: str


class OwnOffer(TypedDict):
    id: str
    slug: str
    name: str
    description: str
    kind: str
    site: str | None
    policy: dict[str, Any]
    version: int
    withdrawn_at: str | None
    created_at: str


class Offer(TypedDict):
    id: str
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
    created_at: str


class Version(TypedDict):
    id: str
    offer_id: str
    number: int
    digest: str | None
    rows: int | None
    columns: list[dict[str, Any]]
    created_at: str


class Queue(TypedDict):
    offer_id: str
    offer: str
    provider: str
    requested: int
    agreed: int
    waiting: int
    running: int


class Contract(TypedDict):
    id: str
    state: str
    reason: str
    job_id: str
    job_name: str
    model: str
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
    requested_at: str
    expires_at: str
    decided_at: str | None
    ended_at: str | None


class Decided(TypedDict):
    id: str
    job_id: str
    state: str
    reason: str
    decided_at: str | None


class JobSummary(TypedDict):
    id: str
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
    created_at: str
    changed_at: str


class Job(JobSummary):
    organisation_id: str
    spec: dict[str, Any]
    files: dict[str, str]
    offers: list[str]


class Event(TypedDict):
    number: int
    state: str
    detail: str
    code: str
    at: str


class Quote(TypedDict):
    budget: int
    fee_basis_points: int
    most_fee: int
    escrow: int
    wait: float | None
    quote: dict[str, Any]


class Cash(TypedDict):
    id: str
    organisation_id: str
    kind: str
    state: str
    amount: int
    reference: str
    reason: str
    created_at: str
    decided_at: str | None


class Account(TypedDict):
    name: str
    balance: int


class Movement(TypedDict):
    seq: int
    kind: str
    at: str
    account: str
    amount: int
    job_id: str | None
    hash: str


class Entry(TypedDict):
    seq: int
    kind: str
    key: str
    job_id: str | None
    at: str
    body: dict[str, Any]
    hash: str
    postings: dict[str, int]


class Audit(TypedDict):
    ok: bool
    entries: int
    head: str
    message: str


class Receipt(TypedDict):
    id: str
    contract_id: str
    body: dict[str, Any]
    signature: str
    created_at: str


class Webhook(TypedDict):
    id: str
    url: str
    created_at: str


class Delivery(TypedDict):
    id: str
    event: str
    body: dict[str, Any]
    attempts: int
    created_at: str
    delivered_at: str | None
    given_up_at: str | None


class NewWebhook(TypedDict):
    webhook: Webhook
    secret: str
