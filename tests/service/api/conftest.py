"""Markets behind the real app."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from web_market import MakeMarket, WebMarket, web_market


@pytest.fixture(scope="module")
def make_market(make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeMarket]:
    """One of everything, on a new database."""
    made: list[Database] = []

    def make(kind: str, **settings: Any) -> WebMarket:
        made.append(Database(make_url(kind)))
        return web_market(made[-1], Settings(home=tmp_path_factory.mktemp("hub"), **settings))

    yield make
    for database in made:
        database.dispose()
