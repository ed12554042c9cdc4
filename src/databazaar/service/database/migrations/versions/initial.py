"""All tables of a hub, as scripts/initial_migration.py writes them from tables.py."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from databazaar.service.database.migrations.append_only import keep, let_go

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "journal_entries",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("key", sa.String(length=120), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=True),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("salt", sa.String(length=32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(op.f("ix_journal_entries_job_id"), "journal_entries", ["job_id"], unique=False)
    op.create_table(
        "journal_head",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("id = 1"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "market",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("decimals", sa.BigInteger(), nullable=False),
        sa.Column("fee_basis_points", sa.BigInteger(), nullable=False),
        sa.Column("market_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("fee_basis_points BETWEEN 0 AND 10000"),
        sa.CheckConstraint("id = 1"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "organisations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("slug", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("operates", sa.Boolean(), nullable=False),
        sa.Column("consumes", sa.Boolean(), nullable=False),
        sa.Column("provides", sa.Boolean(), nullable=False),
        sa.Column("suspended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("slug"),
    )
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=True),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("balance >= 0 OR name = 'outside'", name="never_negative"),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_index(op.f("ix_accounts_organisation_id"), "accounts", ["organisation_id"], unique=False)
    op.create_table(
        "answered",
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("organisation_id", "key"),
    )
    op.create_table(
        "cash_records",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("adapter", sa.String(length=40), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("reference", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('deposit', 'payout', 'withdraw')"),
        sa.CheckConstraint("amount > 0"),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_cash_records_organisation_id"), "cash_records", ["organisation_id"], unique=False)
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("suffix", sa.String(length=10), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("files_digest", "files", ["digest"], unique=False)
    op.create_index(op.f("ix_files_organisation_id"), "files", ["organisation_id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("mode", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("reason_code", sa.String(length=40), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("offers", sa.JSON(), nullable=False),
        sa.Column("needs", sa.JSON(), nullable=False),
        sa.Column("market", sa.Text(), nullable=False),
        sa.Column("market_hash", sa.String(length=64), nullable=True),
        sa.Column("budget", sa.BigInteger(), nullable=False),
        sa.Column("fee_basis_points", sa.BigInteger(), nullable=False),
        sa.Column("escrow", sa.BigInteger(), nullable=False),
        sa.Column("paid", sa.BigInteger(), nullable=True),
        sa.Column("fee", sa.BigInteger(), nullable=True),
        sa.Column("refunded", sa.BigInteger(), nullable=True),
        sa.Column("run_head", sa.String(length=64), nullable=True),
        sa.Column("model_hash", sa.String(length=64), nullable=True),
        sa.Column("stopped_by", sa.String(length=10), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_owner", sa.String(length=32), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_jobs_organisation_id"), "jobs", ["organisation_id"], unique=False)
    op.create_index("jobs_queue", "jobs", ["state", "not_before", "created_at"], unique=False)
    op.create_table(
        "offers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("slug", sa.String(length=60), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("description", sa.String(length=4000), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("site", sa.String(length=200), nullable=True),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("kind IN ('file', 'site')"),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("slug"),
    )
    op.create_index(op.f("ix_offers_organisation_id"), "offers", ["organisation_id"], unique=False)
    op.create_table(
        "people",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("password", sa.String(length=200), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
    )
    op.create_index(op.f("ix_people_organisation_id"), "people", ["organisation_id"], unique=False)
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("url", sa.String(length=1000), nullable=False),
        sa.Column("secret", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_webhooks_organisation_id"), "webhooks", ["organisation_id"], unique=False)
    op.create_table(
        "job_events",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("detail", sa.String(length=1000), nullable=False),
        sa.Column("code", sa.String(length=40), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number"),
    )
    op.create_index(op.f("ix_job_events_job_id"), "job_events", ["job_id"], unique=False)
    op.create_table(
        "journal_postings",
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("account", sa.String(length=80), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account"],
            ["accounts.name"],
        ),
        sa.ForeignKeyConstraint(
            ["seq"],
            ["journal_entries.seq"],
        ),
        sa.PrimaryKeyConstraint("seq", "account"),
    )
    op.create_index(op.f("ix_journal_postings_account"), "journal_postings", ["account"], unique=False)
    op.create_table(
        "offer_versions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("offer_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("file_id", sa.String(length=32), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["file_id"],
            ["files.id"],
        ),
        sa.ForeignKeyConstraint(
            ["offer_id"],
            ["offers.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("offer_id", "number"),
    )
    op.create_index(op.f("ix_offer_versions_offer_id"), "offer_versions", ["offer_id"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("webhook_id", sa.String(length=32), nullable=False),
        sa.Column("event", sa.String(length=40), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("given_up_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_outbox_webhook_id"), "outbox", ["webhook_id"], unique=False)
    op.create_index("outbox_due", "outbox", ["delivered_at", "next_at"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("person_id", sa.String(length=32), nullable=True),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["person_id"],
            ["people.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index(op.f("ix_tokens_organisation_id"), "tokens", ["organisation_id"], unique=False)
    op.create_table(
        "contracts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("job_id", sa.String(length=32), nullable=False),
        sa.Column("offer_id", sa.String(length=32), nullable=False),
        sa.Column("version_id", sa.String(length=32), nullable=False),
        sa.Column("consumer_id", sa.String(length=32), nullable=False),
        sa.Column("provider_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        sa.Column("price", sa.BigInteger(), nullable=False),
        sa.Column("terms", sa.JSON(), nullable=False),
        sa.Column("accesses", sa.BigInteger(), nullable=True),
        sa.Column("paid", sa.BigInteger(), nullable=True),
        sa.Column("epsilon", sa.Double(), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["consumer_id"],
            ["organisations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
        ),
        sa.ForeignKeyConstraint(
            ["offer_id"],
            ["offers.id"],
        ),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["organisations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["offer_versions.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "offer_id"),
    )
    op.create_index(op.f("ix_contracts_consumer_id"), "contracts", ["consumer_id"], unique=False)
    op.create_index(op.f("ix_contracts_job_id"), "contracts", ["job_id"], unique=False)
    op.create_index(op.f("ix_contracts_provider_id"), "contracts", ["provider_id"], unique=False)
    op.create_table(
        "receipts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("organisation_id", sa.String(length=32), nullable=False),
        sa.Column("contract_id", sa.String(length=32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("signature", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["contract_id"],
            ["contracts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["organisation_id"],
            ["organisations.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("contract_id"),
    )
    op.create_index(op.f("ix_receipts_organisation_id"), "receipts", ["organisation_id"], unique=False)
    keep("journal_entries", "journal_postings")
    head = sa.text("INSERT INTO journal_head (id, seq, hash) VALUES (1, -1, :genesis)")
    op.execute(head.bindparams(genesis="0" * 64))
    op.execute("INSERT INTO accounts (name, balance) VALUES ('outside', 0), ('fees', 0)")


def downgrade() -> None:
    let_go("journal_entries", "journal_postings")
    op.drop_index(op.f("ix_receipts_organisation_id"), table_name="receipts")
    op.drop_table("receipts")
    op.drop_index(op.f("ix_contracts_provider_id"), table_name="contracts")
    op.drop_index(op.f("ix_contracts_job_id"), table_name="contracts")
    op.drop_index(op.f("ix_contracts_consumer_id"), table_name="contracts")
    op.drop_table("contracts")
    op.drop_index(op.f("ix_tokens_organisation_id"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_index("outbox_due", table_name="outbox")
    op.drop_index(op.f("ix_outbox_webhook_id"), table_name="outbox")
    op.drop_table("outbox")
    op.drop_index(op.f("ix_offer_versions_offer_id"), table_name="offer_versions")
    op.drop_table("offer_versions")
    op.drop_index(op.f("ix_journal_postings_account"), table_name="journal_postings")
    op.drop_table("journal_postings")
    op.drop_index(op.f("ix_job_events_job_id"), table_name="job_events")
    op.drop_table("job_events")
    op.drop_index(op.f("ix_webhooks_organisation_id"), table_name="webhooks")
    op.drop_table("webhooks")
    op.drop_index(op.f("ix_people_organisation_id"), table_name="people")
    op.drop_table("people")
    op.drop_index(op.f("ix_offers_organisation_id"), table_name="offers")
    op.drop_table("offers")
    op.drop_index("jobs_queue", table_name="jobs")
    op.drop_index(op.f("ix_jobs_organisation_id"), table_name="jobs")
    op.drop_table("jobs")
    op.drop_index(op.f("ix_files_organisation_id"), table_name="files")
    op.drop_index("files_digest", table_name="files")
    op.drop_table("files")
    op.drop_index(op.f("ix_cash_records_organisation_id"), table_name="cash_records")
    op.drop_table("cash_records")
    op.drop_table("answered")
    op.drop_index(op.f("ix_accounts_organisation_id"), table_name="accounts")
    op.drop_table("accounts")
    op.drop_table("organisations")
    op.drop_table("market")
    op.drop_table("journal_head")
    op.drop_index(op.f("ix_journal_entries_job_id"), table_name="journal_entries")
    op.drop_table("journal_entries")
