"""The tables of a ledger in a database: entries, snapshots, triggers that hold everybody to it that entries are written
once, and a table that says which version all of this is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, ProgrammingError

from databazaar.errors import BazaarError, LedgerError

VERSION = 2
_LOCK = 0x62617A616172
"""The advisory lock under which tables are made: "bazaar" in ASCII."""
PATIENCE_MS = 60_000
"""How long a start-up waits for another one that is making the tables."""

_meta = sa.MetaData()

ENTRIES = sa.Table(
    "bazaar_entries",
    _meta,
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("round", sa.BigInteger),
    sa.Column("draw", sa.BigInteger),
    sa.Column("provider", sa.Text),
    sa.Column("amount", sa.BigInteger),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.CheckConstraint("amount >= 0", name="bazaar_amount_not_negative"),
    sa.UniqueConstraint("run", "kind", "round", "draw", name="bazaar_one_per_access"),
)

SNAPSHOTS = sa.Table(
    "bazaar_snapshots",
    _meta,
    sa.Column("run", sa.String(64), primary_key=True),
    sa.Column("next_round", sa.BigInteger, nullable=False),
    sa.Column("sampler", sa.LargeBinary, key="state", nullable=False),
    sa.Column("params", sa.LargeBinary, nullable=False),
)

_APPEND_ONLY = {
    "sqlite": "CREATE TRIGGER bazaar_no_{verb} BEFORE {verb} ON bazaar_entries "
    "BEGIN SELECT RAISE(ABORT, 'ledger entries are append-only'); END",
    "postgresql": "CREATE TRIGGER bazaar_no_{verb} BEFORE {verb} ON bazaar_entries "
    "FOR EACH STATEMENT EXECUTE FUNCTION bazaar_refuse()",
}
_BEFORE = {
    "sqlite": "CREATE TRIGGER bazaar_no_replace BEFORE INSERT ON bazaar_entries "
    "WHEN EXISTS (SELECT 1 FROM bazaar_entries WHERE run = NEW.run AND seq = NEW.seq) "
    "BEGIN SELECT RAISE(ABORT, 'ledger entries are append-only'); END",
    "postgresql": "CREATE FUNCTION bazaar_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'ledger entries are append-only'; END $$",
}
"""The database holds everybody to it, not only this program, that entries are written once."""


def _forbid_changes(_table: Any, connection: sa.Connection, **_: Any) -> None:
    dialect = connection.dialect.name
    rule = _APPEND_ONLY.get(dialect)
    if rule:
        connection.exec_driver_sql(_BEFORE[dialect])
    for verb in ("UPDATE", "DELETE", *(["TRUNCATE"] if dialect == "postgresql" else [])) if rule else ():
        connection.exec_driver_sql(str(rule).format(verb=verb))


sa.event.listen(ENTRIES, "after_create", _forbid_changes)


SCHEMA = sa.Table("bazaar_schema", _meta, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))


def refuse_other(connection: sa.Connection) -> int:
    """The version of a database's tables, which must be the one that this program knows; 0 where it has none."""
    if not sa.inspect(connection).has_table(SCHEMA.name):
        return 0
    version = int(connection.execute(sa.select(sa.func.max(SCHEMA.c.version))).scalar() or 0)
    if version in (0, VERSION):
        return version
    told = (
        f"the ledger's tables are of version {version}, and this databazaar knows version {VERSION}: "
        "use the databazaar that made them"
    )
    # In a file that somebody may have damaged, nothing but its seal says whether this is true.
    raise (LedgerError if connection.dialect.name == "sqlite" else BazaarError)(told)


def prepare(engine: sa.Engine) -> None:
    """Makes the tables. Nothing is written, and no right to do so is needed, where they are there already. However many
    processes start at once, one makes them and the others find them made."""
    with engine.connect() as connection:
        if refuse_other(connection):
            return
    try:
        with _alone(engine) as connection:
            if not refuse_other(connection):
                _meta.create_all(connection)
                connection.execute(SCHEMA.insert().values(version=VERSION))
    except ProgrammingError as reason:
        if getattr(reason.orig, "sqlstate", None) != "42501":  # insufficient privilege
            raise
        raise BazaarError(
            "the ledger's tables are not there, and this role may not make them: let their owner run "
            "`bazaar ledger URL --init`"
        ) from None


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that makes tables while no other one does."""
    if engine.dialect.name != "sqlite":
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            with suppress(DBAPIError):  # a commit that failed may have rolled back already
                connection.exec_driver_sql("ROLLBACK")
            raise


def grants(writer: str, reader: str) -> str:
    """SQL that makes the two roles that PostgreSQL needs beside the tables' owner."""
    quoted = postgresql.dialect().identifier_preparer.quote_identifier  # type: ignore[no-untyped-call]
    w, r = quoted(writer), quoted(reader)
    return f"""\
-- Plays runs: adds entries, replaces what the next round starts from. It changes and removes nothing.
CREATE ROLE {w} LOGIN;
GRANT SELECT, INSERT ON bazaar_entries TO {w};
GRANT SELECT, INSERT, UPDATE ON bazaar_snapshots TO {w};
GRANT SELECT ON bazaar_schema TO {w};
-- Audits: reads.
CREATE ROLE {r} LOGIN;
GRANT SELECT ON bazaar_entries, bazaar_snapshots, bazaar_schema TO {r};
"""
