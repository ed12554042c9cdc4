"""The tables of the hub. Amounts are integers in minor units of the market's one currency.

What belongs to an organisation names it in `organisation_id`, so that every query can ask for the caller's own alone.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

ID, NAME, HASH = sa.String(32), sa.String(200), sa.String(64)


class Moment(TypeDecorator[dt.datetime]):
    """A point in time, always with its zone and always UTC; SQLite alone would forget the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs its time zone")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        return value and (value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC))


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def new_id() -> str:
    """128 random bits: ids tell nothing, and cannot be guessed."""
    return uuid.uuid4().hex


class Table(DeclarativeBase):
    type_annotation_map = {dt.datetime: Moment, dict[str, Any]: sa.JSON, list[Any]: sa.JSON, int: sa.BigInteger}  # noqa: RUF012


class Identified:
    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    created_at: Mapped[dt.datetime] = mapped_column(default=now)


class Owned(Identified):
    organisation_id: Mapped[str] = mapped_column(sa.ForeignKey("organisations.id"), index=True)


class Market(Table):
    """The one row of what the operator has set. `market_id` is also in the hub's folder, once it has served."""

    __tablename__ = "market"
    id: Mapped[int] = mapped_column(primary_key=True, default=1)
    name: Mapped[str] = mapped_column(NAME)
    currency: Mapped[str] = mapped_column(sa.String(3))
    decimals: Mapped[int] = mapped_column(default=2)
    fee_basis_points: Mapped[int] = mapped_column(default=0)
    market_id: Mapped[str | None] = mapped_column(ID)
    created_at: Mapped[dt.datetime] = mapped_column(default=now)
    __table_args__ = (sa.CheckConstraint("id = 1"), sa.CheckConstraint("fee_basis_points BETWEEN 0 AND 10000"))


class Organisation(Identified, Table):
    """`slug` is its name in ids and accounts and never changes. An organisation may consume and provide."""

    __tablename__ = "organisations"
    slug: Mapped[str] = mapped_column(sa.String(40), unique=True)
    name: Mapped[str] = mapped_column(NAME)
    operates: Mapped[bool] = mapped_column(default=False)
    consumes: Mapped[bool] = mapped_column(default=False)
    provides: Mapped[bool] = mapped_column(default=False)
    suspended_at: Mapped[dt.datetime | None]


class Person(Owned, Table):
    """Who signs in. Without a password hash only a one-time link or the identity provider lets them in."""

    __tablename__ = "people"
    email: Mapped[str] = mapped_column(sa.String(254), unique=True)
    name: Mapped[str] = mapped_column(NAME, default="")
    password: Mapped[str | None] = mapped_column(sa.String(200))
    disabled_at: Mapped[dt.datetime | None]


class Token(Owned, Table):
    """A secret of 256 random bits, of which only the SHA-256 is kept. `kind` is api, link (one time) or session."""

    __tablename__ = "tokens"
    person_id: Mapped[str | None] = mapped_column(sa.ForeignKey("people.id"))
    kind: Mapped[str] = mapped_column(sa.String(10))
    label: Mapped[str] = mapped_column(NAME, default="")
    digest: Mapped[str] = mapped_column(HASH, unique=True)
    scopes: Mapped[list[Any]]
    expires_at: Mapped[dt.datetime]
    used_at: Mapped[dt.datetime | None]
    revoked_at: Mapped[dt.datetime | None]


class File(Owned, Table):
    """An uploaded table, kept under its SHA-256; the same bytes of two owners are two rows. `suffix` says how it is
    read, by its content; `columns` are names and kinds. The row of a deleted one stays; the bytes go with the last row
    that names them."""

    __tablename__ = "files"
    name: Mapped[str] = mapped_column(NAME)
    digest: Mapped[str] = mapped_column(HASH)
    suffix: Mapped[str] = mapped_column(sa.String(10))
    size: Mapped[int]
    rows: Mapped[int]
    columns: Mapped[list[Any]]
    deleted_at: Mapped[dt.datetime | None]
    __table_args__ = (sa.Index("files_digest", "digest"),)


class Offer(Owned, Table):
    """A dataset that a provider offers: `kind` file (at the hub) or site (of the federation). `slug` is the provider's
    id in ledgers, `policy` a service.policy.Policy."""

    __tablename__ = "offers"
    slug: Mapped[str] = mapped_column(sa.String(60), unique=True)
    name: Mapped[str] = mapped_column(NAME)
    description: Mapped[str] = mapped_column(sa.String(4000), default="")
    kind: Mapped[str] = mapped_column(sa.String(10))
    site: Mapped[str | None] = mapped_column(NAME)
    policy: Mapped[dict[str, Any]]
    version: Mapped[int] = mapped_column(default=1)
    withdrawn_at: Mapped[dt.datetime | None]
    __table_args__ = (sa.CheckConstraint("kind IN ('file', 'site')"),)


class OfferVersion(Identified, Table):
    """The data of an offer as they were from some time on. A contract pins one."""

    __tablename__ = "offer_versions"
    offer_id: Mapped[str] = mapped_column(sa.ForeignKey("offers.id"), index=True)
    number: Mapped[int]
    file_id: Mapped[str | None] = mapped_column(sa.ForeignKey("files.id"))
    digest: Mapped[str | None] = mapped_column(HASH)
    rows: Mapped[int | None]
    columns: Mapped[list[Any]]
    __table_args__ = (sa.UniqueConstraint("offer_id", "number"),)


class Job(Owned, Table):
    """One purchase. Its id is the run's id. `spec` is market.toml without providers; `files` maps roles to file ids,
    and `offers` are the ids of those that were chosen. `needs` is what providers are told of it once it is submitted,
    and `market` the whole market.toml from then on, with its SHA-256 (service/specification.py).

    `mode` is hosted or own (the consumer runs its arbiter). `stopped_by` says who has asked to stop it: consumer,
    operator, or nobody. `reason` is a sentence for people, and `reason_code` its code (codes.py). `attempts` and
    `not_before` are the supervisor's. `fee_basis_points` and `escrow` are fixed when the job is funded; what it came
    to, when it is settled.
    """

    __tablename__ = "jobs"
    name: Mapped[str] = mapped_column(NAME)
    mode: Mapped[str] = mapped_column(sa.String(10), default="hosted")
    state: Mapped[str] = mapped_column(sa.String(10), default="draft")
    reason: Mapped[str] = mapped_column(sa.String(1000), default="")
    reason_code: Mapped[str] = mapped_column(sa.String(40), default="")
    spec: Mapped[dict[str, Any]]
    files: Mapped[dict[str, Any]]
    offers: Mapped[list[Any]]
    needs: Mapped[dict[str, Any]] = mapped_column(default=dict)
    market: Mapped[str] = mapped_column(sa.Text, default="")
    market_hash: Mapped[str | None] = mapped_column(HASH)
    budget: Mapped[int]
    fee_basis_points: Mapped[int] = mapped_column(default=0)
    escrow: Mapped[int] = mapped_column(default=0)
    paid: Mapped[int | None]
    fee: Mapped[int | None]
    refunded: Mapped[int | None]
    run_head: Mapped[str | None] = mapped_column(HASH)
    model_hash: Mapped[str | None] = mapped_column(HASH)
    stopped_by: Mapped[str] = mapped_column(sa.String(10), default="")
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[dt.datetime | None]
    changed_at: Mapped[dt.datetime] = mapped_column(default=now)
    __table_args__ = (sa.Index("jobs_queue", "state", "not_before", "created_at"),)


class JobEvent(Table):
    """What has happened to a job, in order: what its page shows and what webhooks tell."""

    __tablename__ = "job_events"
    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), index=True)
    number: Mapped[int]
    state: Mapped[str] = mapped_column(sa.String(10))
    detail: Mapped[str] = mapped_column(sa.String(1000), default="")
    code: Mapped[str] = mapped_column(sa.String(40), default="")
    at: Mapped[dt.datetime] = mapped_column(default=now)
    __table_args__ = (sa.UniqueConstraint("job_id", "number"),)


class Contract(Table):
    """What a consumer and a provider have agreed for one job: the version of the data, the price, the bounds."""

    __tablename__ = "contracts"
    id: Mapped[str] = mapped_column(ID, primary_key=True, default=new_id)
    job_id: Mapped[str] = mapped_column(sa.ForeignKey("jobs.id"), index=True)
    offer_id: Mapped[str] = mapped_column(sa.ForeignKey("offers.id"))
    version_id: Mapped[str] = mapped_column(sa.ForeignKey("offer_versions.id"))
    consumer_id: Mapped[str] = mapped_column(sa.ForeignKey("organisations.id"), index=True)
    provider_id: Mapped[str] = mapped_column(sa.ForeignKey("organisations.id"), index=True)
    state: Mapped[str] = mapped_column(sa.String(10), default="requested")
    reason: Mapped[str] = mapped_column(sa.String(1000), default="")
    price: Mapped[int]
    terms: Mapped[dict[str, Any]]
    accesses: Mapped[int | None]
    paid: Mapped[int | None]
    epsilon: Mapped[float | None]
    requested_at: Mapped[dt.datetime] = mapped_column(default=now)
    expires_at: Mapped[dt.datetime]
    decided_at: Mapped[dt.datetime | None]
    ended_at: Mapped[dt.datetime | None]
    __table_args__ = (sa.UniqueConstraint("job_id", "offer_id"),)


class Account(Table):
    """A balance, which follows from the journal. Only `outside`, the world that money comes from, may be negative."""

    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(sa.String(80), primary_key=True)
    organisation_id: Mapped[str | None] = mapped_column(sa.ForeignKey("organisations.id"), index=True)
    balance: Mapped[int] = mapped_column(default=0)
    __table_args__ = (sa.CheckConstraint("balance >= 0 OR name = 'outside'", name="never_negative"),)


class JournalEntry(Table):
    """One transaction between accounts, chained by hash. `key` makes a retry harmless. `salt` is random: who sees
    the chain alone cannot guess amounts and compare."""

    __tablename__ = "journal_entries"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(sa.String(20))
    key: Mapped[str] = mapped_column(sa.String(120), unique=True)
    job_id: Mapped[str | None] = mapped_column(ID, index=True)
    body: Mapped[dict[str, Any]]
    at: Mapped[dt.datetime]
    salt: Mapped[str] = mapped_column(sa.String(32))
    hash: Mapped[str] = mapped_column(HASH)


class Posting(Table):
    """One account's part of an entry; those of an entry sum to zero."""

    __tablename__ = "journal_postings"
    seq: Mapped[int] = mapped_column(sa.ForeignKey("journal_entries.seq"), primary_key=True)
    account: Mapped[str] = mapped_column(sa.ForeignKey("accounts.name"), primary_key=True, index=True)
    amount: Mapped[int]


class JournalHead(Table):
    """The one row that writers lock, so that they queue and cannot deadlock."""

    __tablename__ = "journal_head"
    id: Mapped[int] = mapped_column(primary_key=True, default=1)
    seq: Mapped[int] = mapped_column(default=-1)
    hash: Mapped[str] = mapped_column(HASH, default="0" * 64)
    __table_args__ = (sa.CheckConstraint("id = 1"),)


class Receipt(Owned, Table):
    """What the hub has signed for a provider about one contract."""

    __tablename__ = "receipts"
    contract_id: Mapped[str] = mapped_column(sa.ForeignKey("contracts.id"), unique=True)
    body: Mapped[dict[str, Any]]
    signature: Mapped[str] = mapped_column(sa.String(128))


class CashRecord(Owned, Table):
    """Money that comes in or goes out through a cashier; we hold none of it. `kind` is deposit, payout (of pay) or
    withdraw (of cash), `state` requested, done or refused."""

    __tablename__ = "cash_records"
    kind: Mapped[str] = mapped_column(sa.String(10))
    state: Mapped[str] = mapped_column(sa.String(10), default="requested")
    adapter: Mapped[str] = mapped_column(sa.String(40))
    amount: Mapped[int]
    reference: Mapped[str] = mapped_column(NAME, default="")
    reason: Mapped[str] = mapped_column(sa.String(1000), default="")
    decided_at: Mapped[dt.datetime | None]
    __table_args__ = (sa.CheckConstraint("amount > 0"), sa.CheckConstraint("kind IN ('deposit', 'payout', 'withdraw')"))


class Answered(Table):
    """The answer to a POST with an Idempotency-Key, so that the same request again gets the same answer."""

    __tablename__ = "answered"
    organisation_id: Mapped[str] = mapped_column(sa.ForeignKey("organisations.id"), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    request: Mapped[str] = mapped_column(HASH)
    status: Mapped[int | None]
    answer: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    created_at: Mapped[dt.datetime] = mapped_column(default=now)


class Webhook(Owned, Table):
    """Where an organisation wants to be told; `secret` signs what is sent there."""

    __tablename__ = "webhooks"
    url: Mapped[str] = mapped_column(sa.String(1000))
    secret: Mapped[str] = mapped_column(sa.String(100))
    removed_at: Mapped[dt.datetime | None]


class Outgoing(Identified, Table):
    """The outbox: events for webhooks, written in the transaction that they tell of and kept for some weeks."""

    __tablename__ = "outbox"
    webhook_id: Mapped[str] = mapped_column(sa.ForeignKey("webhooks.id"), index=True)
    event: Mapped[str] = mapped_column(sa.String(40))
    body: Mapped[dict[str, Any]]
    attempts: Mapped[int] = mapped_column(default=0)
    next_at: Mapped[dt.datetime] = mapped_column(default=now)
    delivered_at: Mapped[dt.datetime | None]
    given_up_at: Mapped[dt.datetime | None]
    __table_args__ = (sa.Index("outbox_due", "delivered_at", "next_at"),)
