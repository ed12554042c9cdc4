"""The small market of tests/helpers/desk_market.py, on both databases or on SQLite alone."""

from __future__ import annotations

import pytest

from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from desk_market import DeskMarket, desk_market


@pytest.fixture
def market(database: Database, settings: Settings) -> DeskMarket:
    return desk_market(database, settings)


@pytest.fixture
def small(sqlite_database: Database, settings: Settings) -> DeskMarket:
    """For what does not depend on the kind of database."""
    return desk_market(sqlite_database, settings)
