"""The tables as the migrations make them, on both databases."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text, update
from sqlalchemy.exc import DatabaseError

from databazaar.errors import BazaarError
from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Offer, Table
from databazaar.service.database.upgrade import current, newest, require_current, upgrade
from databazaar.service.settings import Settings
from desk_market import desk_market
from small_books import deposit, emptied, join


def differences(database: Database) -> list[object]:
    with database.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), Table.metadata))


def test_the_migrated_tables_are_those_of_the_code(database: Database) -> None:
    assert current(database) == newest()
    require_current(database)
    assert differences(database) == []
    with database.read() as session:
        assert session.execute(text("SELECT seq, hash FROM journal_head")).all() == [(-1, "0" * 64)]
        assert session.execute(text("SELECT name FROM accounts ORDER BY name")).scalars().all() == ["fees", "outside"]
        assert journal.audit(session).ok


def test_an_empty_database_gets_the_tables(database: Database) -> None:
    emptied(database)
    assert current(database) is None
    with pytest.raises(BazaarError, match="has no tables of a hub yet: `bazaar serve upgrade` makes them"):
        require_current(database)
    assert upgrade(database) == upgrade(database) == newest()
    assert differences(database) == []
    with database.begin() as session:
        join(session, "acme")
        deposit(session, "acme", 5, "1")
    with pytest.raises(DatabaseError, match="append-only"), database.begin() as session:
        session.execute(text("DELETE FROM journal_postings"))


def test_offers_of_before_allow_updates_alone(sqlite_database: Database, settings: Settings) -> None:
    market = desk_market(sqlite_database, settings)
    with sqlite_database.begin() as session:
        policy = dict(market.offer(session, "north", most_accesses=7).policy)
        policy.pop("learners")
        session.execute(update(Offer).values(policy=policy))
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    assert upgrade(sqlite_database) == newest()
    with sqlite_database.read() as session:
        assert session.scalars(select(Offer.policy)).one() == {**policy, "learners": ["averaging"]}


def test_a_newer_database_is_left_alone(sqlite_database: Database) -> None:
    with sqlite_database.begin() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(BazaarError, match="at version 9999, which this databazaar does not know: install the newer"):
        require_current(sqlite_database)
    with pytest.raises(BazaarError, match=r"cannot be brought to version head .*9999.*: is it a newer"):
        upgrade(sqlite_database)


def test_an_older_database_is_refused_with_the_remedy(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("databazaar.service.database.upgrade.newest", lambda: "0003")
    with pytest.raises(BazaarError, match=r"at version 0002 and this databazaar needs 0003.*`bazaar serve upgrade`"):
        require_current(sqlite_database)


def test_the_database_itself_keeps_the_journal(database: Database) -> None:
    with database.begin() as session:
        join(session, "acme")
        deposit(session, "acme", 5, "1")
    changes = [
        "UPDATE {} SET seq = seq + 1",
        "DELETE FROM {}",
        *([] if database.is_sqlite else ["TRUNCATE {} CASCADE"]),
    ]
    for change in changes:
        for table in ("journal_entries", "journal_postings"):
            with pytest.raises(DatabaseError, match="is append-only"), database.begin() as session:
                session.execute(text(change.format(table)))
    with database.read() as session:
        assert journal.audit(session).entries == 1


def test_whoever_only_reads_sees_one_moment(database: Database) -> None:
    with database.begin() as session:
        join(session, "acme")
    with database.read() as reader:
        assert journal.balance(reader, "cash:acme") == 0
        with database.begin() as writer:
            deposit(writer, "acme", 5, "1")
        assert journal.balance(reader, "cash:acme") == 0 and journal.audit(reader).entries == 0
    with database.read() as reader:
        assert journal.balance(reader, "cash:acme") == 5
