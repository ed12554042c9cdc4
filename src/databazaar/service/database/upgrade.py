"""The tables of a hub, made and brought up to date by Alembic's steps, which are part of the package."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import text

from databazaar.errors import BazaarError
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Table

_LOCK = 0x62617A61  # one number for all hubs: two that upgrade at once queue
_ONE_THREAD = threading.Lock()  # Alembic's operations are the process's
SCRIPTS = ScriptDirectory(str(Path(__file__).with_name("migrations")))


def upgrade(database: Database) -> str:
    """Makes the tables or brings them up to date, all or nothing; the version that they are at then."""
    with (
        _ONE_THREAD,
        database.engine.begin() as connection,
        EnvironmentContext(Config(), SCRIPTS, fn=lambda revision, _: SCRIPTS._upgrade_revs("head", revision)) as steps,
    ):
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        steps.configure(connection=connection, target_metadata=Table.metadata)
        try:
            steps.run_migrations()
        except CommandError as reason:
            raise BazaarError(
                f"the database cannot be brought to version head ({reason}): is it a newer databazaar's?"
            ) from None
    return current(database) or ""


def current(database: Database) -> str | None:
    """The version of the tables that are there; None for an empty database."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest() -> str:
    return str(SCRIPTS.get_current_head())


def require_current(database: Database) -> None:
    """Refuses a database that this code does not fit."""
    found = current(database)
    if found == newest():
        return
    if found is None:
        raise BazaarError("the database has no tables of a hub yet: `bazaar serve upgrade` makes them")
    known = {script.revision for script in SCRIPTS.walk_revisions()}
    if found not in known:
        raise BazaarError(
            f"the database is at version {found}, which this databazaar does not know: install the newer databazaar "
            "that made it"
        )
    raise BazaarError(
        f"the database is at version {found} and this databazaar needs {newest()}: make a copy of the database, then "
        "`bazaar serve upgrade`"
    )
