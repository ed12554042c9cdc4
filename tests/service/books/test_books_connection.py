"""Reaching a database: what an address may be, and what comes back as it was."""

from __future__ import annotations

import datetime as dt

import pytest
from sqlalchemy.exc import IntegrityError, StatementError

from databazaar.errors import BazaarError
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Organisation, Webhook


def test_an_address_that_is_none() -> None:
    with pytest.raises(BazaarError, match="address cannot be read: give sqlite:///FILE or postgresql://USER@HOST/NAME"):
        Database("no address")
    with pytest.raises(BazaarError, match="mysql is no database for a hub"):
        Database("mysql://me@here/hub")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_by_any_of_its_names(scheme: str) -> None:
    database = Database(f"{scheme}://me@here/hub")
    assert database.engine.url.drivername == "postgresql+psycopg" and not database.is_sqlite
    database.dispose()


def test_moments_keep_their_zone(database: Database) -> None:
    east = dt.timezone(dt.timedelta(hours=5))
    with database.begin() as session:
        session.add(Organisation(id="o", slug="o", name="O", created_at=dt.datetime(2026, 1, 1, 3, tzinfo=east)))
    with database.read() as session:
        kept = session.get_one(Organisation, "o").created_at
        assert kept.isoformat() == "2025-12-31T22:00:00+00:00"
    naive = dt.datetime(2026, 1, 1)
    with pytest.raises(StatementError, match="a moment needs its time zone"), database.begin() as session:
        session.add(Organisation(slug="p", name="P", created_at=naive))


def test_what_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.begin() as session:
        session.add(Organisation(id="o", slug="o", name="O"))
        session.flush()
        raise RuntimeError
    with database.read() as session:
        assert session.get(Organisation, "o") is None


def test_an_error_does_not_repeat_what_was_written(sqlite_database: Database) -> None:
    lost = Webhook(organisation_id="nobody's", url="https://x.example", secret="sesame")
    with pytest.raises(IntegrityError) as error, sqlite_database.begin() as session:
        session.add(lost)
    assert "webhooks" in str(error.value) and "sesame" not in str(error.value)
