"""Tables whose rows stay as they were written: the database itself refuses to change or remove them."""

from __future__ import annotations

from alembic import op


def keep(*tables: str) -> None:
    """Refuses UPDATE and DELETE, and on PostgreSQL TRUNCATE."""
    postgres = op.get_bind().dialect.name == "postgresql"
    if postgres:
        op.execute(
            "CREATE FUNCTION bazaar_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table in tables:
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


def let_go(*tables: str) -> None:
    """Takes the triggers away, before their tables are dropped."""
    postgres = op.get_bind().dialect.name == "postgresql"
    for table in tables:
        for end in ("kept", "whole") if postgres else ("no_update", "no_delete"):
            op.execute(f"DROP TRIGGER {table}_{end}" + (f" ON {table}" if postgres else ""))
    if postgres:
        op.execute("DROP FUNCTION bazaar_refuse()")
