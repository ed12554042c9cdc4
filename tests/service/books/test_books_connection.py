"""Reaching a database: what an address may be, and what comes back as it was."""

from __future__ import annotations

import datetime as dt
import os
import socket
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, StatementError

from databazaar.errors import BazaarError
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Organisation, Webhook
from postgres import running

AT_SERVER = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
HERE = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


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


@pytest.mark.process
def test_a_connection_over_a_network_is_given_up_soon_by_both_ends() -> None:
    """A partitioned database is an error within seconds, and a lost hub's locks are released in under a minute."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with running(f"-c listen_addresses=127.0.0.1 -c port={port}"):
        database = Database(f"postgresql://bazaar@127.0.0.1:{port}/postgres?keepalives_interval=7")
        with database.engine.connect() as connection:
            at_server = [connection.scalar(text("SELECT current_setting(:name)"), {"name": name}) for name in AT_SERVER]
            raw: Any = connection.connection.driver_connection
            with socket.socket(fileno=os.dup(raw.fileno())) as line:
                here = [line.getsockopt(socket.IPPROTO_TCP, option) for option in HERE]
            assert at_server == ["10", "5", "3", "20000"]
            assert here == [10, 7, 3, 5_000]  # what the address says itself is kept
            assert raw.info.get_parameters()["connect_timeout"] == "5"
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
