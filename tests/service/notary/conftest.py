"""A market whose consumer runs its own arbiter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from own_arbiters import OwnMarket, own_market


@pytest.fixture(scope="module")
def own(make_url: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnMarket]:
    database = Database(make_url("sqlite"))
    settings = Settings(home=tmp_path_factory.mktemp("hub"), cash="test", runners=1)
    with own_market(database, settings) as own:
        yield own
    database.dispose()
