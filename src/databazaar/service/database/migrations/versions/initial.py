"""All tables of a hub, as tables.py declares them, and a journal whose rows the database itself keeps as written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from databazaar.service.database.tables import Table

revision = "0001"
down_revision = None
APPEND_ONLY = ("journal_entries", "journal_postings")


def upgrade() -> None:
    Table.metadata.create_all(op.get_bind())
    _refuse_changes()
    head = sa.text("INSERT INTO journal_head (id, seq, hash) VALUES (1, -1, :genesis)")
    op.execute(head.bindparams(genesis="0" * 64))
    op.execute("INSERT INTO accounts (name, balance) VALUES ('outside', 0), ('fees', 0)")


def _refuse_changes() -> None:
    """Refuses UPDATE and DELETE of append-only tables, and on PostgreSQL TRUNCATE. The triggers go with the tables."""
    postgres = op.get_bind().dialect.name == "postgresql"
    if postgres:
        op.execute(
            "CREATE FUNCTION bazaar_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table in APPEND_ONLY:
        if postgres:
            refuse = "EXECUTE FUNCTION bazaar_refuse()"
            op.execute(f"CREATE TRIGGER {table}_kept BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW {refuse}")
            op.execute(f"CREATE TRIGGER {table}_whole BEFORE TRUNCATE ON {table} FOR EACH STATEMENT {refuse}")
            continue
        for change in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{change} BEFORE {change} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
